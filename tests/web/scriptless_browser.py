"""A browser without script: it reads pages, fills in forms and follows redirects, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from urllib.parse import urlencode, urljoin, urlsplit

from tests.web.conftest import HttpClient

VOID = {"br", "hr", "img", "input", "link", "meta", "path", "circle", "rect", "use"}
"""Elements that do not end, or that our pages always close at once."""


@dataclass
class PageElement:
    """An element of a page."""

    tag: str
    attrs: dict[str, str]
    children: list[PageElement | str] = field(default_factory=list["PageElement | str"])

    @property
    def text(self) -> str:
        """All text in it, blanks folded."""
        return " ".join("".join(self._texts()).split())

    def _texts(self) -> Iterator[str]:
        for child in self.children:
            if isinstance(child, str):
                yield child
            else:
                yield from child._texts()

    def all(self, tag: str = "", **attrs: str) -> list[PageElement]:
        """Elements below it, by tag and attributes; ``class_`` asks for one class among several."""
        elements: list[PageElement] = []
        for child in self.children:
            if isinstance(child, PageElement):
                if child._is(tag, attrs):
                    elements.append(child)
                elements += child.all(tag, **attrs)
        return elements

    def one(self, tag: str = "", **attrs: str) -> PageElement:
        elements = self.all(tag, **attrs)
        assert elements, f"no <{tag} {attrs}>"
        return elements[0]

    def _is(self, tag: str, attrs: Mapping[str, str]) -> bool:
        if tag and self.tag != tag:
            return False
        for name, value in attrs.items():
            if name == "class_":
                if value not in self.attrs.get("class", "").split():
                    return False
            elif self.attrs.get(name.replace("_", "-")) != value:
                return False
        return True


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = PageElement("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = PageElement(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(node)
        if tag not in VOID:
            self._open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(PageElement(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag} {self._open[-1].attrs}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)

    def close(self) -> None:
        super().close()
        assert len(self._open) == 1, f"<{self._open[-1].tag}> is not closed"


def read(html: str) -> PageElement:
    """A page as a tree. What is not nested as it should be fails."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.root


@dataclass
class ScriptlessPage:
    """A page that was got."""

    status: int
    path: str
    """Where it is, after redirects, with its query."""
    html: str
    root: PageElement
    headers: Mapping[str, str]

    @property
    def text(self) -> str:
        return self.root.one("main").text

    @property
    def flash(self) -> str:
        return self.root.one("div", id="flash").text

    @property
    def h1(self) -> str:
        return self.root.one("h1").text

    def error(self, name: str) -> str:
        """What is said beside a field."""
        return self.root.one("p", id=f"{name}-error").text

    def value(self, name: str) -> str:
        """What a field holds."""
        return dict(self.fields(self.form_with(name)))[name]

    def form_with(self, name: str) -> PageElement:
        for form in self.root.all("form"):
            if any(each.attrs.get("name") == name for each in form.all()):
                return form
        raise AssertionError(f"no form has a field {name}")

    def form(self, action: str) -> PageElement:
        return self.root.one("form", action=action)

    def fields(self, form: PageElement) -> list[tuple[str, str]]:
        """What the form would send as it is, without its buttons."""
        own = form.attrs.get("id")
        outside = [each for each in self.root.all() if own and each.attrs.get("form") == own]
        form_pairs: list[tuple[str, str]] = []
        for each in [*form.all(), *outside]:
            name, kind = each.attrs.get("name"), each.attrs.get("type", "")
            if not name or "disabled" in each.attrs:
                continue
            if each.tag == "input" and (kind not in ("checkbox", "radio") or "checked" in each.attrs):
                form_pairs.append((name, each.attrs.get("value", "")))
            elif each.tag == "textarea":
                text = "".join(child for child in each.children if isinstance(child, str))
                form_pairs.append((name, text.removeprefix("\n")))
            elif each.tag == "select":
                options = each.all("option")
                selected_options = [one for one in options if "selected" in one.attrs] or options[:1]
                form_pairs += [(name, one.attrs.get("value", one.text)) for one in selected_options]
        return form_pairs


@dataclass
class ScriptlessBrowser:
    """One person's browser."""

    client: HttpClient
    cookies: dict[str, str] = field(default_factory=dict[str, str])

    async def get(self, path: str, **headers: str) -> ScriptlessPage:
        return await self.go("GET", path, None, headers)

    async def send(
        self,
        page: ScriptlessPage,
        form: PageElement | str,
        values: Mapping[str, str | Sequence[str]] | None = None,
        press: tuple[str, str] | None = None,
    ) -> ScriptlessPage:
        """Fill in a form of the page and send it; ``press`` is the name and value of the button."""
        node = page.form(form) if isinstance(form, str) else form
        changes = dict(values or {})
        pairs = [pair for pair in page.fields(node) if pair[0] not in changes]
        for name, value in changes.items():
            pairs += [(name, each) for each in ([value] if isinstance(value, str) else value)]
        if press is not None:
            pairs.append(press)
        action = node.attrs.get("action") or page.path
        if node.attrs.get("method", "get") == "get":
            return await self.get(f"{action}?{urlencode(pairs)}")
        return await self.go("POST", urljoin(page.path, action), pairs, {})

    async def press(self, page: ScriptlessPage, action: str) -> ScriptlessPage:
        """Press a button that belongs to the form at the page's end."""
        button = page.root.one("button", formaction=action)
        form = page.root.one("form", id=button.attrs["form"])
        pairs = page.fields(form)
        if "name" in button.attrs:
            pairs.append((button.attrs["name"], button.attrs.get("value", "")))
        return await self.go("POST", action, pairs, {})

    async def go(
        self, method: str, path: str, pairs: Sequence[tuple[str, str]] | None, headers: Mapping[str, str]
    ) -> ScriptlessPage:
        for _ in range(5):
            request_headers = {**headers, **self.cookie()}
            body = None if pairs is None else urlencode(pairs)
            if body is not None:
                request_headers["Content-Type"] = "application/x-www-form-urlencoded"
                request_headers["Origin"] = self.client.url
            answer = await self.client.ask(method, path, data=body, headers=request_headers)
            self._remember(answer.headers)
            if answer.status != 303:
                return ScriptlessPage(answer.status, path, answer.text, read(answer.text), answer.headers)
            parts = urlsplit(urljoin(self.client.url + path, answer.headers["Location"]))
            assert f"{parts.scheme}://{parts.netloc}" == self.client.url, "a redirect leads elsewhere"
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            method, pairs = "GET", None
        raise AssertionError("redirects without end")

    def cookie(self) -> dict[str, str]:
        cookie_header = self.client.headers.get("Cookie", "")
        both = "; ".join(
            [
                *([cookie_header] if cookie_header else []),
                *(f"{key}={value}" for key, value in self.cookies.items()),
            ]
        )
        return {"Cookie": both} if both else {}

    def _remember(self, headers: Mapping[str, str]) -> None:
        for line in getattr(headers, "getall", lambda *_: [])("Set-Cookie", []):
            for name, morsel in SimpleCookie(line).items():
                if morsel["max-age"] == "0":
                    self.cookies.pop(name, None)
                else:
                    self.cookies[name] = morsel.value
