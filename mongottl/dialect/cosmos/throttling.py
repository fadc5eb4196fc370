"""How Cosmos DB refuses requests beyond the throughput, requests that take too long, and all while it is not available.

Source: Microsoft's "Common errors and solutions" and "Server side retry", and replies that users have recorded in their
tests and issues (Azure/cosmos-explorer, microsoft/vscode-documentdb, microsoft/FluidFramework, pagopa). The words that
follow `Details='` in the text without a hint are known for inserts; those for other operations are assumed.
"""

from typing import Final

from mongottl.config.cosmos_choices import BATCH
from mongottl.dialect.cosmos.advice import advice
from mongottl.dialect.cosmos.wording import wrapped
from mongottl.errors import CommandError, ErrorCode

# Its `codeName` is RequestRateTooLarge.
TOO_MANY_REQUESTS: Final = 16500
# The forms of the text: of a single read or write, of a batch, one that has no hint when to try again, and one that
# ends where its details begin (strapi/strapi#5590, 2020). Which one a batch gets is up to the account
# (`cosmos_choices.BATCH_TEXTS`): Azure/cosmos-explorer and pagopa have the short one, an insertMany whose reply a
# program quotes the whole one.
SINGLE: Final = "single"
NO_HINT: Final = "noHint"
BARE: Final = "bare"
FORMS: Final = (SINGLE, BATCH, NO_HINT, BARE)
# Users have seen hints from 4 to 500 milliseconds.
DEFAULT_RETRY_AFTER_MS: Final = 34
# What helps against throttling by the budget, and against a request that has waited for it as long as it may.
BUDGET_ADVICE: Final = advice(
    "The throughput of the collection or of its database is used up",
    "raise it by UpdateCollection or UpdateDatabase",
    "do not enforce it, with --cosmos-throughput metered",
)

# The texts of a request that takes too long, by whether the server has waited because of throttling.
TIMEOUT_TEXTS: Final = {
    "plain": "Request timed out.",
    "rateLimited": "Request timed out. Retries due to rate limiting: True.",
    "notRateLimited": "Request timed out. Retries due to rate limiting: False.",
}

_REASON: Final = """{
  "Errors": [
    "Request rate is large. More Request Units may be needed, so no changes were made. Please retry this request later.\
 Learn more: http://aka.ms/cosmosdb-error-429"
  ]
}"""


def throttled(operation: str, form: str, retry_after_ms: int, what_helps: str = BUDGET_ADVICE) -> CommandError:
    """16500, for a request or statement that is refused because the throughput is used up.

    operation: "Insert", "Update", "Delete" or "Query". form: one of `FORMS`. retry_after_ms: what
    the text says after `RetryAfterMs=`, where clients look for it.
    """
    hint = f"RetryAfterMs={retry_after_ms}, "
    if form == NO_HINT:
        text = f"Error={TOO_MANY_REQUESTS}, Details='{operation} error.'"
    elif form == BARE:
        text = f"Error={TOO_MANY_REQUESTS}, Details='"
    elif form == BATCH:
        text = f"Error={TOO_MANY_REQUESTS}, {hint}Details='Batch write error."
    else:
        text = wrapped(TOO_MANY_REQUESTS, _REASON, "TooManyRequests (429)", 3200, hint)
    return CommandError(TOO_MANY_REQUESTS, text, advice=what_helps)


def timed_out(form: str, what_helps: str) -> CommandError:
    """50, whose `codeName` is ExceededTimeLimit. form: a key of `TIMEOUT_TEXTS`."""
    return CommandError(ErrorCode.MaxTimeMSExpired, TIMEOUT_TEXTS[form], advice=what_helps)


def unavailable(what_helps: str) -> CommandError:
    """InternalError (1), as users have met it for a moment after a collection was made. The words of the reason are
    assumed."""
    reason = 'Message: {"Errors":["The request failed because the service is not available. Please retry."]}'
    return CommandError(ErrorCode.InternalError, wrapped(1, reason, "ServiceUnavailable (503)"), advice=what_helps)
