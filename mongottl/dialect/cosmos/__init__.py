"""The dialect `cosmos`: what Azure Cosmos DB for MongoDB (request units, 3.6 to 7.0) refuses, and how it answers.

    dialect       `CosmosDialect`: its answers to the server's questions, made of what follows
    account       the account that the server stands for, as it is configured now
    features      commands, stages and operators that each of its versions has
    limits        bounds on documents, ids, names and time
    wording       the texts around errors: `Error=2, Details='…'`
    advice        what to do about a refusal, for the log
    replies       fields of replies
    defects       what only some accounts do
    account_user  the account's name and keys, by which clients log in

    provisioning  databases, collections, shard keys and throughput; targeting: writes that name a shard key
    indexes       which indexes it takes, and how it lists them; served_sorts: sorts that an index must serve
    transactions  which collections they may use, and for how long
    change_feed   the pipeline and the resume tokens of change streams; feed_stream: their events
    explain       the reply of explain for a find; explain_find: executes it
    commands      its own commands

    gateway       runs every command: meters, fail points, budgets
    request_meter what an operation loads and changes; metering: access to storage through it; charges: what that costs
    throughput    what a collection may spend; budgets: what is left of it; statement_gate: who waits or is refused
    throttling    the texts of throttling, timeouts and 503; fail_points: these on purpose

No other package imports one of these modules: the dialect is loaded by its name, and asked as `dialect.interface` and
`commands.dialect_hooks` say. What its settings may be is in `config.cosmos_choices`.

Source: Microsoft's documentation of the service, and where that is silent what users of it have reported. A fact that
no source gives is marked as assumed where it is decided.
"""
