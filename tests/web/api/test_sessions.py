"""``/api/v1/sessions`` and the account page: the browsers that a person is signed in with."""

from __future__ import annotations

from tests.web.conftest import HttpClient, InProcessApp, SignedInUser

from toolyard.web.access.cookies import cookie_name

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"


async def _another_browser(team: InProcessApp, person: SignedInUser) -> HttpClient:
    text = await team.services.people.begin_session(person.user, "192.0.2.7", FIREFOX)
    return team.client(Cookie=f"{cookie_name(team.services.settings)}={text}")


async def test_people_list_their_browsers_and_sign_out_one_or_all(password_site: InProcessApp) -> None:
    ann, bob = await password_site.person("ann"), await password_site.person("bob")
    other = await _another_browser(password_site, ann)
    items = (await ann.browser.get("/api/v1/sessions")).json["items"]
    assert sorted(each["current"] for each in items) == [False, True]
    (other_session,) = (each for each in items if not each["current"])
    assert (other_session["browser"], other_session["network"]) == ("Firefox on Linux", "192.0.2.7")
    assert (await ann.token.get("/api/v1/sessions")).status == 403, "sessions are not for tokens"
    assert (await bob.browser.delete(f"/api/v1/sessions/{other_session['id']}")).status == 404
    assert (await other.get("/api/v1/me")).status == 200
    assert (await ann.browser.delete(f"/api/v1/sessions/{other_session['id']}")).status == 204
    assert (await other.get("/api/v1/me")).status == 401
    assert (await ann.browser.delete("/api/v1/sessions")).status == 204
    assert (await ann.browser.get("/api/v1/me")).status == 401
    assert (await ann.token.get("/api/v1/me")).status == 200, "tokens stay"
    assert (await bob.browser.get("/api/v1/me")).status == 200


async def test_the_account_page_lists_browsers_with_a_button_for_each(password_site: InProcessApp) -> None:
    ann = await password_site.person("ann")
    await _another_browser(password_site, ann)
    page = (await ann.browser.get("/ui/account")).text
    assert page.count('/sign-out"') == 3, "one for each browser, and the one of every page"
    assert "Firefox on Linux" in page
    assert "192.0.2.7" in page
    assert page.count(">this one<") == 1


async def test_without_sessions_the_list_is_empty(local_site: InProcessApp) -> None:
    assert (await local_site.client().get("/api/v1/sessions")).json == {"items": []}
