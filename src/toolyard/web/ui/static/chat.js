// Enhancements for the chat page: live updates, sending without leaving the page, and the scroll position.
"use strict";

const chat = $("#chat");
const NEAR = 120;
const shown = () => document.visibilityState === "visible";
const atEnd = () => scrollY + innerHeight >= document.documentElement.scrollHeight - NEAR;
const toEnd = () => scrollTo({ top: document.documentElement.scrollHeight });

// Live updates. The server sends HTML fragments and their places; no state is computed here.

let last = Number(chat?.dataset.after || 0), source = null, following = true;

function element(html) {
  const made = document.createElement("template");
  made.innerHTML = html;
  return made.content.firstElementChild;
}

function putPart({ id, html, into, done }) {
  const old = document.getElementById(id), fresh = element(html);
  if (old) {
    // Keep opened details open.
    $$("details", old).forEach((one, at) => {
      const same = $$("details", fresh)[at];
      if (same && one.open) same.open = true;
    });
    const focused = old.contains(document.activeElement);
    put(old, fresh);
    // If the focused button is gone, focus the message box, without scrolling.
    if (focused && !fresh.contains(document.activeElement)) ($("#text") || $("#main")).focus({ preventScroll: true });
  } else {
    document.getElementById(into)?.append(fresh);
    ready(fresh);
  }
  dress(fresh);
  if (done) hear(fresh.textContent);
}

// Streamed text continues inside the last open block of the rendered Markdown. The server replaces the whole part
// with rendered HTML when the text is complete.
const WITHIN = "p, ul, ol, li, blockquote, pre, code";

function addText({ id, text }) {
  let place = document.getElementById(id);
  while (place?.lastElementChild?.matches(WITHIN)) place = place.lastElementChild;
  if (place?.lastChild?.nodeType === Node.TEXT_NODE) place.lastChild.appendData(text);
  else place?.append(text);
}

// Another alternative was chosen, here or elsewhere: the turns after the last common one are replaced.
function switchBranch({ after, html }) {
  const turns = $("#turns"), focused = turns.contains(document.activeElement) && document.activeElement.id;
  const last = document.getElementById(after);
  if (after && !last) return location.reload();
  while (last ? last.nextElementSibling : turns.firstElementChild) (last ? last.nextElementSibling : turns.firstElementChild).remove();
  if (!after) $("#earlier").replaceChildren();
  const made = document.createElement("template");
  made.innerHTML = html;
  const fresh = [...made.content.children];
  turns.append(...fresh);
  fresh.forEach(dress);
  if (focused) (document.getElementById(focused) || $("#text") || $("#main")).focus({ preventScroll: true });
  hear($(".alternatives", fresh[0])?.textContent || "");
}

function hear(text) {
  const words = text.replace(/\s+/g, " ").trim(), log = $("#heard");
  if (!words) return;
  log.append(Object.assign(document.createElement("p"), { textContent: words }));
  // A live region: screen readers announce additions, and older entries are never read again.
  while (log.childElementCount > 8) log.firstElementChild.remove();
}

function setState(state) {
  chat.dataset.state = state;
  if (state === "idle") hear("Turn finished");
}

function change(changes) {
  // Measured before the changes: afterwards the page is longer and never at its end.
  const stay = following && atEnd();
  for (const one of changes) {
    if (one.after !== undefined) switchBranch(one);
    else if (one.html !== undefined) putPart(one);
    else if (one.text !== undefined) addText(one);
    else if (one.state) setState(one.state);
    else if (one.say) hear(one.say);
  }
  if (stay) toEnd();
  else offerEnd();
}

function follow() {
  if (!shown() || isOpen(source) || !chat?.dataset.stream) return;
  source = new EventSource(`${chat.dataset.stream}?after=${last}`);
  source.addEventListener("changes", async (event) => {
    // Set first, so that a stream that is reopened meanwhile does not send these changes again.
    last = Number(event.lastEventId);
    // Replacing an element between press and release would swallow the click.
    await letGo;
    change(JSON.parse(event.data));
  });
  source.addEventListener("gone", () => {
    leave();
    delete chat.dataset.stream;
    tell(element('<div class="alert bad" role="alert"><p>This chat was deleted.</p></div>'));
  });
  keepOpen(source, follow, (error) => tell(trouble(error)));
}

function leave() {
  source?.close();
  source = null;
}

// Browsers limit the number of streams across all windows, so hidden pages close theirs.
document.addEventListener("visibilitychange", () => (shown() ? follow() : leave()));
addEventListener("pagehide", leave);

// Scroll position: new content scrolls the page only if it was at the end.

function offerEnd() {
  const button = $("[data-to-end]");
  if (button) button.hidden = atEnd();
}
addEventListener("scroll", () => {
  following = atEnd();
  offerEnd();
}, { passive: true });

if (chat?.dataset.stream) new ResizeObserver(() => following && toEnd()).observe($(".dock"));
document.addEventListener("load", ({ target }) => target.matches?.(".pictures img") && following && toEnd(), true);

// Sending without leaving the page. The effects arrive over the stream.

let sending = null;

// Replaces only children that changed, so that a link that is being pressed stays.
function putChanged(old, fresh) {
  const pairs = [...old.children].map((one, at) => [one, fresh.children[at]]);
  if (pairs.length !== fresh.children.length) put(old, fresh);
  else pairs.forEach(([one, other]) => one.isEqualNode(other) || put(one, other));
}

async function sendQuietly(form, button) {
  const busy = button || form;
  if (busy.getAttribute("aria-busy") === "true") return;
  const data = new URLSearchParams(new FormData(form, button));
  const how = button?.dataset.quiet ?? form.dataset.quiet;
  busy.setAttribute("aria-busy", "true");
  try {
    const response = await post(goalOf(form, button), data, PART);
    if (response.redirected) return location.assign(response.url);
    const { page, said } = await read(response), made = page.body;
    if (!response.ok && (made.querySelector("main") || !made.querySelector(":scope > [id]"))) return tell(made.querySelector(".alert, .empty") || trouble(new Refused(said)));
    $("#told").replaceChildren();
    for (const fresh of [...made.children]) {
      const old = fresh.id && document.getElementById(fresh.id);
      if (old) (how === "settings" ? putChanged : put)(old, fresh);
    }
    if (response.ok && how === "clear") clearMessage(form);
    if (response.ok && how === "close") $("#dialog").close();
    // The user's own action: its effects should be in view, even if the page was scrolled up before.
    if (response.ok && how !== "stay") following = true;
  } catch (error) {
    tell(trouble(error));
  } finally {
    busy.removeAttribute("aria-busy");
  }
}

function tell(alert) {
  $("#told").replaceChildren(document.adoptNode(alert));
}

function clearMessage(form) {
  const box = $("textarea", form);
  box.value = "";
  box.focus();
  form.dispatchEvent(new Event("sent"));
  toEnd();
}

// Not the maxlength attribute, because browsers silently cut off pasted text that exceeds it.
document.addEventListener("input", ({ target }) => {
  const most = Number(target.dataset.most);
  if (!most) return;
  // Counted in characters as the server does, not in UTF-16 units; only if the cheap length exceeds the limit.
  const count = target.value.length > most ? [...target.value].length : 0;
  target.setCustomValidity(count > most ? `The message has ${count.toLocaleString("en")} characters; the limit is ${most.toLocaleString("en")}. Split it into several messages, or put the text in a workspace file.` : "");
});

document.addEventListener("submit", (event) => {
  const form = event.target, button = event.submitter;
  if (event.defaultPrevented || button?.dataset.swap !== undefined) return;
  const quiet = button?.dataset.quiet ?? form.dataset.quiet;
  if (quiet === undefined || quiet === "go") return;
  event.preventDefault();
  sending = sendQuietly(form, button);
});

document.addEventListener("change", ({ target }) => {
  if (target.matches("[data-submit]")) target.form.requestSubmit();
});

// Drafts: unsent text is restored when the page is opened again in the same window.

const box = $("#text"), draft = `draft ${who(document)} ${location.pathname}`;
let isSent = false;

if (box && !box.value) box.value = sessionStorage.getItem(draft) || "";
addEventListener("submit", ({ defaultPrevented, target }) => (isSent = !defaultPrevented && target === box?.form));
addEventListener("pagehide", () => {
  if (!box) return;
  if (box.value && !isSent) sessionStorage.setItem(draft, box.value);
  else sessionStorage.removeItem(draft);
});

// Parts that are loaded on request.

const fetchPart = async (url, id) => (await ask(url, PART)).page.getElementById(id);

const wanted = (form) => String(new URLSearchParams(new FormData(form)));

const findSoon = later(150, async (form) => {
  const asked = wanted(form);
  const fresh = await fetchPart(`${goalOf(form)}?${asked}`, "console-list").catch(() => tell(trouble()));
  const old = $("#console-list");
  // A tool may have been chosen or the query changed since.
  if (fresh && old && asked === wanted(form)) put(old, fresh);
});
document.addEventListener("input", ({ target }) => {
  const form = target.closest("form[data-find]");
  if (form) findSoon(form);
});
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-find]")) return;
  event.preventDefault();
  $("#console-list a")?.click();
});

async function loadEarlier(link) {
  const fresh = await fetchPart(link.href, "earlier-turns"), first = $("#turns").firstElementChild;
  const top = first.getBoundingClientRect().top;
  $("#earlier").replaceWith(document.adoptNode($("#earlier", fresh)));
  const turns = $$(":scope > .turn", fresh);
  $("#turns").prepend(...turns);
  turns.forEach(dress);
  turns.forEach(ready);
  // The turns above push the page down: scroll by the same distance, so that the reader stays in place.
  scrollBy(0, first.getBoundingClientRect().top - top);
  say(`${turns.length} earlier turns`);
  watchEarlier();
}

// Earlier turns are loaded before the reader reaches them. If that fails, the link is still there.
const nearStart = new IntersectionObserver(async ([seen]) => {
  const link = $("a", seen.target);
  if (!seen.isIntersecting || !link || link.getAttribute("aria-busy")) return;
  link.setAttribute("aria-busy", "true");
  await loadEarlier(link).catch(() => link.removeAttribute("aria-busy"));
}, { rootMargin: "800px 0px 0px" });

function watchEarlier() {
  nearStart.disconnect();
  if ($("#earlier a")) nearStart.observe($("#earlier"));
}

const ASKED = {
  "a[data-console]": async (link) => {
    put($("#console"), await fetchPart(link.href, "console"));
    $("#console :is(input:not([type=hidden]), textarea, select)")?.focus();
  },
  "a[data-panel]": async (link) => {
    // Wait for a pending change of settings, which affects the panel.
    await sending;
    $("#dialog").replaceChildren(document.adoptNode(await fetchPart(link.href, "panel")));
    $("#dialog h1").id = "dialog-title";
    if (!$("#dialog").open) $("#dialog").showModal();
  },
  "a[data-earlier]": loadEarlier,
  "[data-to-end]": () => {
    following = true;
    toEnd();
  },
  "[data-copy-turn]": async (button) => {
    const texts = $$(".answer .md", button.closest(".turn")).map((one) => one.innerText.trim());
    await copy(texts.filter(Boolean).join("\n\n"));
  },
};

document.addEventListener("click", async (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  for (const [selector, act] of Object.entries(ASKED)) {
    const found = event.target.closest?.(selector);
    if (!found) continue;
    event.preventDefault();
    found.setAttribute("aria-busy", "true");
    try {
      await act(found);
    } catch {
      // Every link also works as a plain page.
      found.href ? location.assign(found.href) : tell(trouble());
    } finally {
      found.removeAttribute("aria-busy");
    }
    return;
  }
});

// Additions to the server's HTML: copy buttons for code, and times in the local time zone.

let clock;

function dress(root) {
  for (const pre of $$(".md pre", root)) {
    if (pre.parentElement.matches(".code-frame")) continue;
    const frame = Object.assign(document.createElement("div"), { className: "code-frame" });
    const button = element('<button type="button" class="button quiet small" data-copy aria-label="Copy code"><svg class="icon" aria-hidden="true"><use href="#i-copy"/></svg></button>');
    pre.replaceWith(frame);
    frame.append(button, pre);
  }
  for (const time of $$("time.at", root)) {
    clock ??= new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" });
    time.textContent = clock.format(new Date(time.dateTime));
  }
}

// Keyboard shortcuts.

const typing = (target) => target.closest?.("input, textarea, select, [contenteditable]");
const touch = matchMedia("(pointer: coarse) and (hover: none)");

document.addEventListener("keydown", (event) => {
  const { key, target } = event, plain = !event.ctrlKey && !event.metaKey && !event.altKey;
  // With an input method, Enter confirms the composed characters and must not send the message.
  if (event.isComposing || $("#dialog").open) return;
  if (key === "Enter" && target.id === "text" && plain && !event.shiftKey && !touch.matches) {
    event.preventDefault();
    if (chat.dataset.state === "idle" && target.value.trim()) target.form.requestSubmit();
  } else if (key === "Escape" && !$("[popover]:popover-open, details.more[open]") && chat?.dataset.state !== "idle") {
    // In other fields, Escape closes the browser's suggestions or clears the field.
    if (typing(target) && target.id !== "text") return;
    event.preventDefault();
    $("#stop")?.click();
  } else if (key === "/" && plain && !typing(target)) {
    event.preventDefault();
    ($("#text") || $("#console input[type=search]") || $("#console a[data-console]"))?.focus();
  } else if (key === "?" && plain && !typing(target)) {
    event.preventDefault();
    $("#keys").togglePopover();
  }
});

// After the page is ready: the first format of a time takes as long as everything else here.
setTimeout(dress, 0, document);
if (chat?.dataset.stream) {
  follow();
  // With the next frame, which needs the layout of the page anyway.
  requestAnimationFrame(() => {
    if (!location.hash || location.hash === "#end") toEnd();
    watchEarlier();
  });
}
