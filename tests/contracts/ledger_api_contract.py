"""What a ledger must do for the API: tokens by their hashes, and responses by idempotency key."""

from __future__ import annotations

from dataclasses import replace

from contracts.ledger_samples import START, Clock, after

from eventbridge.ledger import Ledger
from eventbridge.model.api import ApiToken, KeptResponse

TOKEN = ApiToken("shop", ("publish:orders", "publish:*"), START, after(60))
RESPONSE = KeptResponse("shop", "key-1", "cafe", 207, '{"published": 1, "said": "\\u0000"}', START)


class ApiContract:
    """What a ledger must do for the API."""

    def test_a_token_is_found_by_its_hash(self, ledger: Ledger, rival: Ledger) -> None:
        """Every process reads the token as it was recorded; another hash belongs to no token."""
        assert ledger.tokens.add(TOKEN, "h1")

        assert rival.tokens.get("h1") == TOKEN
        assert rival.tokens.get("h2") is None
        assert rival.tokens.all() == [TOKEN]

    def test_a_name_has_one_token(self, ledger: Ledger, rival: Ledger) -> None:
        """If two callers make a token of one name, the second gets an error and changes nothing."""
        assert ledger.tokens.add(TOKEN, "h1")
        assert not rival.tokens.add(replace(TOKEN, scopes=()), "h2")

        assert rival.tokens.all() == [TOKEN]

    def test_a_token_is_revoked_once(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """A token stays revoked from its first revocation on; its name does not become free."""
        ledger.tokens.add(TOKEN, "h1")
        at = clock.pass_seconds(5)

        assert ledger.tokens.revoke("shop")
        clock.pass_seconds(5)
        assert not rival.tokens.revoke("shop")
        assert not rival.tokens.revoke("other")
        assert rival.tokens.get("h1") == replace(TOKEN, revoked_at=at)
        assert not ledger.tokens.add(TOKEN, "h2")

    def test_a_key_keeps_its_first_response(self, ledger: Ledger, rival: Ledger) -> None:
        """Of two responses to a key of one caller the first is kept; another caller's key is another."""
        assert ledger.responses.keep(RESPONSE, START)
        assert not rival.responses.keep(replace(RESPONSE, status=200), START)
        assert rival.responses.keep(replace(RESPONSE, caller="other"), START)

        assert rival.responses.get("shop", "key-1", START) == RESPONSE
        assert rival.responses.get("shop", "key-2", START) is None

    def test_a_response_that_is_too_old_is_none(self, ledger: Ledger) -> None:
        """It does not count, and the next one that is kept takes its place."""
        ledger.responses.keep(RESPONSE, START)

        assert ledger.responses.get("shop", "key-1", after(1)) is None
        newer = replace(RESPONSE, made_at=after(10))
        assert ledger.responses.keep(newer, after(1))
        assert ledger.responses.get("shop", "key-1", after(1)) == newer

    def test_servers_count_what_an_owner_publishes_together(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """What one was granted the other does not get; of another owner nothing is taken; a second fills a second's."""
        assert ledger.publish_balances.grant("shop", 10.0, 6).events == 6 + 2
        assert rival.publish_balances.grant("shop", 10.0, 6).events == 6
        refused = ledger.publish_balances.grant("shop", 10.0, 1)
        assert (refused.events, round(refused.wait_seconds, 3)) == (0, 0.5)
        assert rival.publish_balances.grant("desk", 10.0, 6).events == 8

        clock.pass_seconds(0.5)
        assert rival.publish_balances.grant("shop", 10.0, 1).events == 1
