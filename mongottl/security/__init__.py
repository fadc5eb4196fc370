"""Users, roles and privileges.

    names          names of users and roles, each with its database
    scram          SCRAM: credentials, and the server's side of a conversation
    privileges     resources, actions, and sets of privileges
    builtin_roles  the built-in roles of MongoDB
    accounts       the stored users and roles, and what they may do

Users and roles are documents of the collections `admin.system.users` and `admin.system.roles`, in MongoDB's form, so
they are as durable as all other data.
"""
