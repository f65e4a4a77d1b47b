// Enhancements for all pages. Every page also works without this script, with plain forms and links.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const FRAGMENT_REQUEST = { headers: { "toolyard-part": "1" } };
const FOCUSABLE = "a, button, input, select, textarea, summary";

const currentPath = () => location.pathname + location.search;
let shownPath = currentPath();

function updateUrl(url, method = "pushState") {
  history[method](null, "", url);
  shownPath = currentPath();
  $("#action-form [name=next]").value = shownPath;
}

function announce(text) {
  $("#announcements").textContent = text;
}

function debounce(milliseconds, action) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(action, milliseconds, ...args);
  };
}

// Elements are not replaced while a pointer is pressed: replacing the pressed element would lose the click.

let pointerReleased = Promise.resolve(), releasePointer = () => {};

addEventListener("pointerdown", () => {
  pointerReleased = new Promise((resolve) => (releasePointer = resolve));
  setTimeout(releasePointer, 3000);
}, true);
// The click event follows these, so release after it.
["pointerup", "pointercancel"].forEach((name) => addEventListener(name, () => setTimeout(releasePointer), true));

// Replacing pages or parts of them.

function replaceElement(oldElement, newElement) {
  const focusedElement = oldElement.contains(document.activeElement) && document.activeElement;
  const index = focusedElement && $$(FOCUSABLE, oldElement).indexOf(focusedElement);
  const adopted = document.adoptNode(newElement);
  oldElement.replaceWith(adopted);
  const autofocusElement = $("[data-focus]", adopted);
  // A focused element with an id is found by that id only; without one, by its position.
  if (autofocusElement || focusedElement) focusElement(autofocusElement || (focusedElement.id ? document.getElementById(focusedElement.id) : $$(FOCUSABLE, adopted)[index]));
  activateElements(adopted);
}

function focusElement(element) {
  // Elements in a closed menu cannot be focused; focus the button of the menu instead.
  const menu = element?.closest("details.more:not([open])");
  (menu ? $("summary", menu) : element)?.focus();
  if (document.activeElement === document.body) $("#main").focus({ preventScroll: true });
}

// Replaces the elements that match the selector, or the whole page if the response does not contain them.
function showPage(response, selector) {
  if (isSignInUrl(response.url)) throw new SignedOutError();
  const isSamePath = new URL(response.url).pathname === location.pathname;
  const pairs = (selector ? $$(selector) : []).map((oldElement) => [oldElement, response.page.getElementById(oldElement.id)]);
  if (isSamePath && pairs.length && pairs.every(([, newElement]) => newElement)) {
    pairs.forEach(([oldElement, newElement]) => replaceElement(oldElement, newElement));
    const flash = response.page.getElementById("flash");
    if (flash) $("#flash").replaceChildren(...flash.childNodes);
    return;
  }
  const [main, sidebar] = [response.page.getElementById("main"), $(".side", response.page)];
  if (!main && !response.ok) throw new RequestError(response.message);
  if (!main) return location.assign(response.url);
  if (response.url !== location.href) updateUrl(response.url);
  document.title = response.page.title;
  if (sidebar) $(".side")?.replaceWith(document.adoptNode(sidebar));
  $("#main").replaceWith(document.adoptNode(main));
  activateElements(document);
  ($("[data-focus]") || $("#main")).focus({ preventScroll: true });
  announce($("#flash").textContent.trim());
  scrollTo(0, 0);
}

// form.action would return a field with the name “action”, if there is one.
function actionUrl(form, button) {
  return button?.hasAttribute("formaction") ? button.formAction : new URL(form.getAttribute("action") ?? "", location.href).href;
}

let lastRequestId = 0;

async function submitForm(form, button) {
  const data = new URLSearchParams(new FormData(form, button));
  const busyElement = button || form;
  busyElement.setAttribute("aria-busy", "true");
  try {
    const selector = button?.dataset.swap ?? form.dataset.swap;
    if (form.method === "get") {
      const url = `${actionUrl(form).split("?")[0]}?${data}`, requestId = ++lastRequestId;
      const response = await fetchPage(url);
      // A newer request has started since.
      if (requestId !== lastRequestId) return;
      showPage(response, selector);
      updateUrl(url, "replaceState");
    } else {
      showPage(await readPage(await postForm(actionUrl(form, button), data)), selector);
    }
    $("#dialog").close();
  } catch (error) {
    showError(error).scrollIntoView({ block: "nearest" });
  } finally {
    busyElement.removeAttribute("aria-busy");
  }
}

function showError(error) {
  const container = $("#alerts") || $("#flash");
  container.replaceChildren(createErrorAlert(error));
  return container;
}

function closeMenu(menu) {
  if (!menu) return;
  menu.open = false;
  $("summary", menu).focus();
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Over plain http, browsers deny scripts the clipboard API, but copy selected text.
    const focusedElement = document.activeElement, textarea = Object.assign(document.createElement("textarea"), { value: text, className: "visually-hidden" });
    ($("dialog[open]") || document.body).append(textarea);
    textarea.select();
    document.execCommand("copy");
    textarea.remove();
    focusedElement?.focus({ preventScroll: true });
  }
  announce("Copied");
}

// After another page of a list was loaded, focus the list and scroll to its start.
function showListPage(link) {
  updateUrl(link.href);
  const list = $(link.dataset.swap);
  if (!list) return;
  list.tabIndex = -1;
  list.focus({ preventScroll: true });
  list.scrollIntoView({ block: "start" });
  announce($(".pager span", list)?.textContent);
}

let requestedConfirmation = null;

// Shows the confirmation part of a page as a dialog.
async function openConfirmation(link) {
  requestedConfirmation = link;
  const confirmation = (await fetchPage(link.href)).page.getElementById("confirm");
  // A late response must not replace the confirmation of the link that was clicked last.
  if (requestedConfirmation !== link) return;
  if (!confirmation) return location.assign(link.href);
  $("h1", confirmation).id = "dialog-title";
  closeMenu(link.closest("details.more"));
  $("#dialog").replaceChildren(document.adoptNode(confirmation));
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
    $$("button", form).forEach((themeButton) => themeButton.setAttribute("aria-pressed", String(themeButton === button)));
  } else if (form.id === "panels" && button) {
    event.preventDefault();
    togglePanel(button);
  } else if ((button?.dataset.swap ?? form.dataset.swap) !== undefined) {
    event.preventDefault();
    if (button?.getAttribute("aria-busy") !== "true") submitForm(form, button);
  }
});

// A form that leads to another page is sent only once, even after repeated clicks, until five seconds have passed.
// Before it leaves the page, check that the server responds and the person is still signed in: otherwise the
// entered values would be lost with the page.
addEventListener("submit", (event) => {
  const form = event.target, button = event.submitter;
  if (event.defaultPrevented || form.method !== "post" || form.dataset.confirmed) return;
  if (form.dataset.submitted) return event.preventDefault();
  form.dataset.submitted = "yes";
  setTimeout(() => delete form.dataset.submitted, 5000);
  if (!userName(document) || (button && !form.contains(button))) return;
  event.preventDefault();
  renewCsrfTokens().then(() => {
    form.dataset.confirmed = "yes";
    form.requestSubmit(button);
    delete form.dataset.confirmed;
  }).catch((error) => {
    delete form.dataset.submitted;
    $("#dialog").close();
    showError(error).scrollIntoView({ block: "nearest" });
  });
});

const CLICK_ACTIONS = {
  "a.skip": () => $("#main").focus(),
  "a[data-dialog]": (link) => openConfirmation(link).catch(() => requestedConfirmation === link && location.assign(link.href)),
  "#dialog [data-cancel]": () => $("#dialog").close(),
  "a[data-swap]": async (link) => {
    const requestId = ++lastRequestId;
    try {
      const response = await fetchPage(link.href);
      if (requestId !== lastRequestId) return;
      showPage(response, link.dataset.swap);
      if (link.rel) showListPage(link);
    } catch {
      if (requestId === lastRequestId) location.assign(link.href);
    }
  },
  "[data-close]": (button) => {
    button.closest(button.dataset.close).remove();
    $("#main").focus({ preventScroll: true });
  },
  "[data-copy]": async (button) => {
    const source = $("input, code", button.parentElement);
    await copyText(source.value ?? source.textContent);
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1500);
  },
  "[data-select]": (input) => input.select(),
  "[data-add]": (button) => {
    const list = $(button.dataset.add), container = document.createElement("div");
    container.innerHTML = $(`${button.dataset.add}-template`).innerHTML.replaceAll("__n__", list.dataset.next++);
    const item = container.firstElementChild;
    list.append(item);
    $("select, input", item).focus();
  },
  "[data-remove]": (button) => {
    button.closest("fieldset").remove();
    $("[data-add]").focus();
    announce("Removed");
  },
  "[data-check-all]": (button) => {
    const boxes = $$("input[type=checkbox]", $(button.dataset.checkAll)).filter((box) => !box.closest("[hidden]"));
    boxes.forEach((box) => (box.checked = button.value === "yes"));
  },
};

// Runs the action of the first selector that a clicked element matches.
function runOnClick(actions, onError = () => {}) {
  document.addEventListener("click", async (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    for (const [selector, action] of Object.entries(actions)) {
      const element = event.target.closest?.(selector);
      if (!element) continue;
      event.preventDefault();
      if (element.getAttribute("aria-busy") === "true") return;
      element.setAttribute("aria-busy", "true");
      try {
        await action(element);
      } catch {
        // Every link also works as a plain page.
        element.href ? location.assign(element.href) : onError();
      } finally {
        element.removeAttribute("aria-busy");
      }
      return;
    }
  });
}

document.addEventListener("click", (event) => {
  $$("details.more[open]").forEach((menu) => menu.contains(event.target) || (menu.open = false));
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  for (const [selector, action] of Object.entries(CLICK_ACTIONS)) {
    const element = event.target.closest?.(selector);
    if (!element) continue;
    event.preventDefault();
    action(element);
    return;
  }
});

// A menu at the end of a list that scrolls would open out of view.
document.addEventListener("toggle", ({ target }) => {
  if (target.matches("details.more[open]")) $(".more-menu", target)?.scrollIntoView({ block: "nearest" });
}, true);

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeMenu(event.target.closest?.("details.more[open]"));
});

const filterList = debounce(60, (input) => {
  const words = input.value.toLowerCase().split(/\s+/);
  const items = $$(input.dataset.filter);
  items.forEach((item) => (item.hidden = !words.every((word) => item.textContent.toLowerCase().includes(word))));
  const shown = items.filter((item) => !item.hidden);
  // Matches in a folded part would be counted, but not seen.
  if (input.value.trim()) shown.forEach((item) => item.closest("details")?.setAttribute("open", ""));
  announce(`${shown.length} shown`);
});

const submitSearch = debounce(200, (form) => form.isConnected && form.requestSubmit());

const checkField = debounce(250, async (input) => {
  const { value } = input;
  const { page, ok } = await fetchPage(`${input.dataset.check}${encodeURIComponent(value)}`, FRAGMENT_REQUEST).catch(() => ({}));
  // The page may have changed in the meantime.
  if (!input.isConnected || input.value !== value) return;
  const error = document.getElementById(`${input.id}-error`);
  error.textContent = ok ? page.body.textContent.trim() : "";
  error.hidden = !error.textContent;
  input.setAttribute("aria-invalid", String(!error.hidden));
  announce(error.textContent);
});

document.addEventListener("input", ({ target }) => {
  if (target.matches("[data-filter]")) filterList(target);
  if (target.matches("[data-check]")) checkField(target);
  const form = target.closest("form[data-search]");
  if (form) submitSearch(form);
  if (target.id) $$(`[data-mirror="${CSS.escape(target.id)}"]`).forEach((mirror) => (mirror.textContent = target.value || "…"));
});

document.addEventListener("change", ({ target }) => {
  if (target.matches("[data-refresh]")) target.form.requestSubmit(target.nextElementSibling);
});

// Fragments that are loaded after the page, so that a slow server does not block it.

async function loadFragment(placeholder, url = placeholder.dataset.load) {
  try {
    const newElement = (await fetchPage(url, FRAGMENT_REQUEST)).page.getElementById(placeholder.id);
    if (!placeholder.isConnected) return;
    replaceElement(placeholder, newElement);
    newElement.dispatchEvent(new CustomEvent("fragmentload", { bubbles: true }));
  } catch {
    placeholder.removeAttribute("aria-busy");
    $(".waiting", placeholder)?.replaceChildren("Couldn’t load this. Reload the page to try again.");
  }
}

// Fragments that are loaded when they come into view, such as those of closed details.
const fragmentObserver = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
  fragmentObserver.unobserve(target);
  loadFragment(target, target.dataset.lazyLoad);
}), { rootMargin: "200px" });

function activateElements(root) {
  const select = (selector) => [...(root.matches?.(selector) ? [root] : []), ...$$(selector, root)];
  select("[data-load]").forEach((element) => loadFragment(element));
  select("[data-lazy-load]").forEach((element) => fragmentObserver.observe(element));
  select("a[data-navigate]").forEach((link) => location.replace(link.href));
}

// Updates relative times while the page is open, in the format of the server.

const TIME_UNITS = [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"], [86400 * 60, 86400, "d"]];

function formatRelativeTime(seconds) {
  const distance = Math.abs(seconds), [, unit, symbol] = TIME_UNITS.find(([end]) => distance < end) ?? [];
  if (!unit || distance < 5) return unit && "just now";
  return seconds < 0 ? `in ${Math.round(distance / unit)} ${symbol}` : `${Math.floor(distance / unit)} ${symbol} ago`;
}

setInterval(() => {
  if (document.hidden) return;
  for (const time of $$("time[data-ago]")) {
    const text = formatRelativeTime((Date.now() - Date.parse(time.dateTime)) / 1000);
    if (text && time.textContent !== text) time.textContent = text;
  }
}, 10000);

// Live status: an event on the stream, or a change of the pending items, triggers a reload of the page's live elements.

let refreshPostponed = false, lastRefreshId = 0, shownRefreshId = 0;

const refresh = debounce(150, async () => {
  refreshPostponed = document.hidden || $("#dialog").open;
  if (refreshPostponed || !$("[data-live]")) return;
  const requestedUrl = location.href, requestId = ++lastRefreshId;
  const { page, ok, url } = await fetchPage(requestedUrl).catch(() => ({}));
  if (requestedUrl !== location.href) return refresh();
  // Ignore responses that are older than one already shown.
  if (requestId < shownRefreshId || !ok || new URL(url).pathname !== location.pathname) return;
  shownRefreshId = requestId;
  for (const oldElement of $$("[data-live]")) {
    const newElement = page.getElementById(oldElement.id);
    if (!oldElement.isConnected || newElement?.isEqualNode(oldElement) || $("details.more[open]", oldElement)) continue;
    if (!newElement) {
      oldElement.remove();
      continue;
    }
    const status = $(".pill", newElement)?.textContent;
    if (newElement.dataset.name && status !== $(".pill", oldElement)?.textContent) announce(`${newElement.dataset.name}: ${status}`);
    replaceItems(oldElement, newElement);
  }
});

// Keeps list items that contain forms, with the values entered, until the server no longer sends them or their form.
function replaceItems(oldElement, newElement) {
  const [list, newList] = [oldElement, newElement].map((element) => $("[data-items]", element));
  if (!list || !newList) return replaceElement(oldElement, newElement);
  const isFocused = list.contains(document.activeElement), items = [...newList.children];
  [...list.children].forEach((child) => items.some(({ id }) => id === child.id) || child.remove());
  let next = list.firstElementChild;
  for (const item of items) {
    const existing = document.getElementById(item.id);
    next = existing ? existing.nextElementSibling : next;
    if (!existing) {
      list.insertBefore(document.adoptNode(item), next);
      activateElements(item);
    } else if (!existing.isEqualNode(item) && ![existing, item].every((element) => $("form, select", element))) replaceElement(existing, item);
  }
  if (isFocused && !list.contains(document.activeElement)) focusElement(null);
}

const REFRESH_SECONDS_WITHOUT_STREAM = 5;
let eventStream = null, openCount = 0, retryTimer = 0;

async function openEventStream() {
  const canOpen = () => document.body.dataset.events && !document.hidden && !isStreamOpen(eventStream);
  if (!canOpen()) return;
  const hasSlot = await acquireStreamSlot();
  if (!canOpen()) return document.hidden && releaseStreamSlot();
  if (!hasSlot) {
    if (openCount++) refresh();
    clearTimeout(retryTimer);
    retryTimer = setTimeout(openEventStream, REFRESH_SECONDS_WITHOUT_STREAM * 1000);
    return;
  }
  const stream = (eventStream = new EventSource(document.body.dataset.events)), states = new Map();
  keepStreamOpen(stream, openEventStream, showError);
  // Events may have been missed while the stream was closed.
  stream.addEventListener("open", () => openCount++ && refresh());
  stream.addEventListener("status", ({ data }) => {
    const { kind, id, state, cause, processes } = JSON.parse(data);
    // After a quick restart, only the process differs.
    const key = `${kind}:${id}`, status = `${state} ${cause ?? ""} ${JSON.stringify(processes)}`;
    const element = $(`[data-live="${CSS.escape(key)}"]`);
    // The first events report the current states. Refresh only if the page shows something else.
    const changed = states.has(key) ? states.get(key) !== status : element && element.dataset.state !== state;
    states.set(key, status);
    if (changed) refresh();
  });
  stream.addEventListener("gone", refresh);
}

function closeEventStream() {
  eventStream?.close();
  releaseStreamSlot();
}

addEventListener("pagehide", closeEventStream);

// Browsers limit the number of streams across all windows, so hidden pages close theirs.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) closeEventStream();
  else openEventStream();
  if (refreshPostponed) refresh();
});
$("#dialog").addEventListener("close", () => refreshPostponed && refresh());
addEventListener("popstate", () => shownPath === currentPath() || location.reload());
addEventListener("pageshow", (event) => event.persisted && location.reload());
// After signing out, forget drafts of this window. A redirect to sign-in has a query, and keeps them.
if (isSignInUrl(location.href) && !location.search) sessionStorage.clear();
activateElements(document);
openEventStream();
$("[data-focus]")?.focus();
