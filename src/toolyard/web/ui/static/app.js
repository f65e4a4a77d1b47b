// Enhancements for all pages. Every page also works without this script, with plain forms and links.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const PART = { headers: { "toolyard-part": "1" } };
const USABLE = "a, button, input, select, textarea, summary";

const place = () => location.pathname + location.search;
let at = place();

function goTo(url, how = "pushState") {
  history[how](null, "", url);
  at = place();
  $("#act [name=next]").value = at;
}

function say(text) {
  $("#say").textContent = text;
}

function later(milliseconds, work) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(work, milliseconds, ...given);
  };
}

// Elements are not replaced while a pointer is pressed: replacing the pressed element would lose the click.

let letGo = Promise.resolve(), release = () => {};

addEventListener("pointerdown", () => {
  letGo = new Promise((done) => (release = done));
  setTimeout(release, 3000);
}, true);
// The click event follows these, so release after it.
["pointerup", "pointercancel"].forEach((name) => addEventListener(name, () => setTimeout(release), true));

// Replacing pages or parts of them.

function put(old, fresh) {
  const focused = old.contains(document.activeElement) && document.activeElement;
  const index = focused && $$(USABLE, old).indexOf(focused);
  const taken = document.adoptNode(fresh);
  old.replaceWith(taken);
  const asks = $("[data-focus]", taken);
  // A focused element with an id is found by that id only; without one, by its position.
  if (asks || focused) focusOn(asks || (focused.id ? document.getElementById(focused.id) : $$(USABLE, taken)[index]));
  ready(taken);
}

function focusOn(wanted) {
  // Elements in a closed menu cannot be focused; focus the button of the menu instead.
  const menu = wanted?.closest("details.more:not([open])");
  (menu ? $("summary", menu) : wanted)?.focus();
  if (document.activeElement === document.body) $("#main").focus({ preventScroll: true });
}

// Replaces the elements that match the selector, or the whole page if the response does not contain them.
function show(answer, selector) {
  if (isSignIn(answer.url)) throw new SignedOut();
  const here = new URL(answer.url).pathname === location.pathname;
  const pairs = (selector ? $$(selector) : []).map((old) => [old, answer.page.getElementById(old.id)]);
  if (here && pairs.length && pairs.every(([, fresh]) => fresh)) {
    pairs.forEach(([old, fresh]) => put(old, fresh));
    const told = answer.page.getElementById("flash");
    if (told) $("#flash").replaceChildren(...told.childNodes);
    return;
  }
  const [main, side] = [answer.page.getElementById("main"), $(".side", answer.page)];
  if (!main && !answer.ok) throw new Refused(answer.said);
  if (!main) return location.assign(answer.url);
  if (answer.url !== location.href) goTo(answer.url);
  document.title = answer.page.title;
  if (side) $(".side")?.replaceWith(document.adoptNode(side));
  $("#main").replaceWith(document.adoptNode(main));
  ready(document);
  ($("[data-focus]") || $("#main")).focus({ preventScroll: true });
  say($("#flash").textContent.trim());
  scrollTo(0, 0);
}

// form.action would return a field with the name “action”, if there is one.
function goalOf(form, button) {
  return button?.hasAttribute("formaction") ? button.formAction : new URL(form.getAttribute("action") ?? "", location.href).href;
}

let searches = 0;

async function send(form, button) {
  const data = new URLSearchParams(new FormData(form, button));
  const busy = button || form;
  busy.setAttribute("aria-busy", "true");
  try {
    const selector = button?.dataset.swap ?? form.dataset.swap;
    if (form.method === "get") {
      const url = `${goalOf(form).split("?")[0]}?${data}`, mine = ++searches;
      const answer = await ask(url);
      // A newer search has started since.
      if (mine !== searches) return;
      show(answer, selector);
      goTo(url, "replaceState");
    } else {
      show(await read(await post(goalOf(form, button), data)), selector);
    }
    $("#dialog").close();
  } catch (error) {
    fail(error).scrollIntoView({ block: "nearest" });
  } finally {
    busy.removeAttribute("aria-busy");
  }
}

function fail(error) {
  const place = $("#told") || $("#flash");
  place.replaceChildren(trouble(error));
  return place;
}

function closeMenu(menu) {
  if (!menu) return;
  menu.open = false;
  $("summary", menu).focus();
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Over plain http, browsers deny scripts the clipboard API, but copy selected text.
    const focused = document.activeElement, area = Object.assign(document.createElement("textarea"), { value: text, className: "unseen" });
    ($("dialog[open]") || document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    focused?.focus({ preventScroll: true });
  }
  say("Copied");
}

// After turning to another page of a list, focus and scroll to its beginning.
function turnTo(link) {
  goTo(link.href);
  const list = $(link.dataset.swap);
  if (!list) return;
  list.tabIndex = -1;
  list.focus({ preventScroll: true });
  list.scrollIntoView({ block: "start" });
  say($(".pager span", list)?.textContent);
}

// Shows the confirmation part of a page as a dialog.
async function openDialog(link) {
  const part = (await ask(link.href)).page.getElementById("confirm");
  if (!part) return location.assign(link.href);
  $("h1", part).id = "dialog-title";
  closeMenu(link.closest("details.more"));
  $("#dialog").replaceChildren(document.adoptNode(part));
  $("#dialog").showModal();
}

// Collapses or expands the navigation or the list of chats. Only the button for the other way is visible afterwards.
function togglePanel({ name, value }) {
  document.cookie = `toolyard_${name}=${value}; path=/; max-age=31536000; samesite=lax`;
  document.documentElement.dataset[name] = value;
  $(`[form=panels][name=${name}]:not([value=${value}])`).focus();
  if (name === "nav") $$("#nav nav a").forEach((link) => (value === "closed" ? (link.title = $(".label", link).textContent) : link.removeAttribute("title")));
}

// Listeners are on the document, so that they also apply to replaced elements.

document.addEventListener("submit", (event) => {
  const form = event.target, button = event.submitter;
  if (form.matches(".themes") && button) {
    event.preventDefault();
    document.cookie = `toolyard_theme=${button.value}; path=/; max-age=31536000; samesite=lax`;
    document.documentElement.dataset.theme = button.value;
    $$("button", form).forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
  } else if (form.id === "panels" && button) {
    event.preventDefault();
    togglePanel(button);
  } else if ((button?.dataset.swap ?? form.dataset.swap) !== undefined) {
    event.preventDefault();
    if (button?.getAttribute("aria-busy") !== "true") send(form, button);
  }
});

// A form that leads to another page is sent only once, even after repeated clicks, until five seconds have passed.
// Before it leaves the page, check that the server responds and the person is still signed in: otherwise the
// entered values would be lost with the page.
addEventListener("submit", (event) => {
  const form = event.target, button = event.submitter;
  if (event.defaultPrevented || form.method !== "post" || form.dataset.sure) return;
  if (form.dataset.sent) return event.preventDefault();
  form.dataset.sent = "yes";
  setTimeout(() => delete form.dataset.sent, 5000);
  if (!who(document) || (button && !form.contains(button))) return;
  event.preventDefault();
  renew().then(() => {
    form.dataset.sure = "yes";
    form.requestSubmit(button);
    delete form.dataset.sure;
  }).catch((error) => {
    delete form.dataset.sent;
    $("#dialog").close();
    fail(error).scrollIntoView({ block: "nearest" });
  });
});

const CLICKS = {
  "a.skip": () => $("#main").focus(),
  "a[data-dialog]": (link) => openDialog(link).catch(() => location.assign(link.href)),
  "#dialog [data-cancel]": () => $("#dialog").close(),
  "a[data-swap]": async (link) => {
    try {
      show(await ask(link.href), link.dataset.swap);
      if (link.rel) turnTo(link);
    } catch {
      location.assign(link.href);
    }
  },
  "[data-close]": (button) => {
    button.closest(button.dataset.close).remove();
    $("#main").focus({ preventScroll: true });
  },
  "[data-copy]": async (button) => {
    const from = $("input, code", button.parentElement);
    await copy(from.value ?? from.textContent);
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1500);
  },
  "[data-select]": (input) => input.select(),
  "[data-add]": (button) => {
    const list = $(button.dataset.add), made = document.createElement("div");
    made.innerHTML = $(`${button.dataset.add}-template`).innerHTML.replaceAll("__n__", list.dataset.next++);
    const added = made.firstElementChild;
    list.append(added);
    $("select, input", added).focus();
  },
  "[data-drop]": (button) => {
    button.closest("fieldset").remove();
    $("[data-add]").focus();
    say("Removed");
  },
  "[data-all]": (button) => {
    const boxes = $$("input[type=checkbox]", $(button.dataset.all)).filter((box) => !box.closest("[hidden]"));
    boxes.forEach((box) => (box.checked = button.value === "yes"));
  },
};

document.addEventListener("click", (event) => {
  $$("details.more[open]").forEach((menu) => menu.contains(event.target) || (menu.open = false));
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  for (const [selector, act] of Object.entries(CLICKS)) {
    const found = event.target.closest?.(selector);
    if (!found) continue;
    event.preventDefault();
    act(found);
    return;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeMenu(event.target.closest?.("details.more[open]"));
});

const filterSoon = later(60, (input) => {
  const words = input.value.toLowerCase().split(/\s+/);
  const all = $$(input.dataset.filter);
  all.forEach((one) => (one.hidden = !words.every((word) => one.textContent.toLowerCase().includes(word))));
  say(`${all.filter((one) => !one.hidden).length} shown`);
});

const searchSoon = later(200, (form) => form.isConnected && form.requestSubmit());

const checkSoon = later(250, async (input) => {
  const { value } = input;
  const { page, ok } = await ask(`${input.dataset.check}${encodeURIComponent(value)}`, PART).catch(() => ({}));
  // The page may have changed in the meantime.
  if (!input.isConnected || input.value !== value) return;
  const error = document.getElementById(`${input.id}-error`);
  error.textContent = ok ? page.body.textContent.trim() : "";
  error.hidden = !error.textContent;
  input.setAttribute("aria-invalid", String(!error.hidden));
  say(error.textContent);
});

document.addEventListener("input", ({ target }) => {
  if (target.matches("[data-filter]")) filterSoon(target);
  if (target.matches("[data-check]")) checkSoon(target);
  const form = target.closest("form[data-search]");
  if (form) searchSoon(form);
  if (target.id) $$(`[data-mirror="${CSS.escape(target.id)}"]`).forEach((one) => (one.textContent = target.value || "…"));
});

document.addEventListener("change", ({ target }) => {
  if (target.matches("[data-refresh]")) target.form.requestSubmit(target.nextElementSibling);
});

// Parts that are loaded after the page, so that a slow server does not block it.

async function load(part, url = part.dataset.load) {
  try {
    const fresh = (await ask(url, PART)).page.getElementById(part.id);
    if (part.isConnected) put(part, fresh);
  } catch {
    part.removeAttribute("aria-busy");
    $(".waiting", part)?.replaceChildren("Couldn’t load this. Reload the page to try again.");
  }
}

// Parts that are loaded when they come into view, such as those of closed details.
const seenParts = new IntersectionObserver((entries) => entries.filter((one) => one.isIntersecting).forEach(({ target }) => {
  seenParts.unobserve(target);
  load(target, target.dataset.later);
}), { rootMargin: "200px" });

function ready(root) {
  const all = (selector) => [...(root.matches?.(selector) ? [root] : []), ...$$(selector, root)];
  all("[data-load]").forEach((part) => load(part));
  all("[data-later]").forEach((part) => seenParts.observe(part));
  all("a[data-navigate]").forEach((link) => location.replace(link.href));
}

// Relative times go on while the page is open, in the words of the server.

const UNITS = [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"], [86400 * 60, 86400, "d"]];

function ago(seconds) {
  const distance = Math.abs(seconds), [, unit, word] = UNITS.find(([end]) => distance < end) ?? [];
  if (!unit || distance < 5) return unit && "just now";
  const words = `${Math.floor(distance / unit)} ${word}`;
  return seconds < 0 ? `in ${words}` : `${words} ago`;
}

setInterval(() => {
  if (document.hidden) return;
  for (const one of $$("time[data-ago]")) {
    const words = ago((Date.now() - Date.parse(one.dateTime)) / 1000);
    if (words && one.textContent !== words) one.textContent = words;
  }
}, 10000);

// Live status: an event on the stream triggers a reload of the page's live elements.

let stale = false, looks = 0, seen = 0;

const refresh = later(150, async () => {
  stale = document.hidden || $("#dialog").open;
  if (stale) return;
  const here = location.href, mine = ++looks;
  const { page, ok, url } = await ask(here).catch(() => ({}));
  if (here !== location.href) return refresh();
  // Ignore responses that are older than one already shown.
  if (mine < seen || !ok || new URL(url).pathname !== location.pathname) return;
  seen = mine;
  for (const old of $$("[data-live]")) {
    const fresh = page.getElementById(old.id);
    if (!old.isConnected || fresh?.isEqualNode(old) || $("details.more[open]", old)) continue;
    if (!fresh) {
      old.remove();
      continue;
    }
    const now = $(".pill", fresh)?.textContent;
    if (fresh.dataset.name && now !== $(".pill", old)?.textContent) say(`${fresh.dataset.name}: ${now}`);
    put(old, fresh);
  }
});

let live = null, opened = 0;

function listen() {
  if (!document.body.dataset.events || document.hidden || isOpen(live)) return;
  const source = (live = new EventSource(document.body.dataset.events)), states = new Map();
  keepOpen(source, listen, fail);
  // Events may have been missed while the stream was closed.
  source.addEventListener("open", () => opened++ && refresh());
  source.addEventListener("status", ({ data }) => {
    const { kind, id, state, cause, pid } = JSON.parse(data);
    // After a quick restart, only the process id differs.
    const key = `${kind}:${id}`, now = `${state} ${cause ?? ""} ${pid ?? ""}`;
    const shown = $(`[data-live="${CSS.escape(key)}"]`);
    // The first events report the current states. Refresh only if the page shows something else.
    const news = states.has(key) ? states.get(key) !== now : shown && shown.dataset.state !== state;
    states.set(key, now);
    if (news) refresh();
  });
  source.addEventListener("gone", refresh);
}

addEventListener("pagehide", () => live?.close());

// Browsers limit the number of streams across all windows, so hidden pages close theirs.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) live?.close();
  else listen();
  if (stale) refresh();
});
$("#dialog").addEventListener("close", () => stale && refresh());
addEventListener("popstate", () => at === place() || location.reload());
addEventListener("pageshow", (event) => event.persisted && location.reload());
// After signing out, forget drafts of this window. A redirect to sign-in has a query, and keeps them.
if (isSignIn(location.href) && !location.search) sessionStorage.clear();
ready(document);
listen();
$("[data-focus]")?.focus();
