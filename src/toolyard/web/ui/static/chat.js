// Enhancements for the chat page: live updates, sending without leaving the page, and the scroll position.
"use strict";

const chat = $("#chat");
const END_MARGIN_PIXELS = 120;
const isPageVisible = () => document.visibilityState === "visible";
const isAtEnd = () => scrollY + innerHeight >= document.documentElement.scrollHeight - END_MARGIN_PIXELS;
const scrollToEnd = () => scrollTo({ top: document.documentElement.scrollHeight });

// Live updates. The server sends HTML fragments and their places; no state is computed here.

let lastEventId = Number(chat?.dataset.after || 0), chatStream = null, followsEnd = true;

function parseElement(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content.firstElementChild;
}

function updateFragment({ id, html, into, done }) {
  const oldElement = document.getElementById(id), newElement = parseElement(html);
  if (oldElement) {
    // Keep opened details open.
    $$("details", oldElement).forEach((details, index) => {
      const newDetails = $$("details", newElement)[index];
      if (newDetails && details.open) newDetails.open = true;
    });
    const hadFocus = oldElement.contains(document.activeElement);
    replaceElement(oldElement, newElement);
    // If the focused button is gone, focus the message box, without scrolling.
    if (hadFocus && !newElement.contains(document.activeElement)) ($("#text") || $("#main")).focus({ preventScroll: true });
  } else {
    document.getElementById(into)?.append(newElement);
    activateElements(newElement);
  }
  enhanceMessages(newElement);
  if (done) announceInChat(newElement.textContent);
}

// Streamed text continues inside the last open block of the rendered Markdown. The server replaces the whole fragment
// with rendered HTML when the text is complete.
const TEXT_CONTAINERS = "p, ul, ol, li, blockquote, pre, code";

function appendText({ id, text }) {
  let container = document.getElementById(id);
  while (container?.lastElementChild?.matches(TEXT_CONTAINERS)) container = container.lastElementChild;
  if (container?.lastChild?.nodeType === Node.TEXT_NODE) container.lastChild.appendData(text);
  else container?.append(text);
}

// Another alternative was chosen, here or elsewhere: the turns after the last common one are replaced.
function switchBranch({ after, html }) {
  const turns = $("#turns"), focusedElement = turns.contains(document.activeElement) && document.activeElement;
  const lastTurn = document.getElementById(after);
  if (after && !lastTurn) return location.reload();
  while (lastTurn ? lastTurn.nextElementSibling : turns.firstElementChild) (lastTurn ? lastTurn.nextElementSibling : turns.firstElementChild).remove();
  if (!after) $("#earlier").replaceChildren();
  const template = document.createElement("template");
  template.innerHTML = html;
  const newTurns = [...template.content.children];
  turns.append(...newTurns);
  newTurns.forEach(enhanceMessages);
  if (focusedElement && !focusedElement.isConnected) {
    const newElement = document.getElementById(focusedElement.id);
    // At the first and the last alternative, the pressed arrow is disabled.
    ((newElement?.disabled ? $("button:enabled", newElement.parentElement) : newElement) || $("#text") || $("#main")).focus({ preventScroll: true });
  }
  announceInChat($(".alternatives", newTurns[0])?.textContent || "");
}

function announceInChat(text) {
  const line = text.replace(/\s+/g, " ").trim(), log = $("#chat-log");
  if (!line) return;
  log.append(Object.assign(document.createElement("p"), { textContent: line }));
  // A live region: screen readers announce additions, and older entries are never read again.
  while (log.childElementCount > 8) log.firstElementChild.remove();
}

function setState(state) {
  chat.dataset.state = state;
  if (state === "idle") announceInChat("Turn finished");
}

function applyChanges(changes) {
  // Measured before the changes: afterwards the page is longer and never at its end.
  const shouldScroll = followsEnd && isAtEnd();
  for (const change of changes) {
    if (change.after !== undefined) switchBranch(change);
    else if (change.html !== undefined) updateFragment(change);
    else if (change.text !== undefined) appendText(change);
    else if (change.state) setState(change.state);
    else if (change.say) announceInChat(change.say);
  }
  if (shouldScroll) scrollToEnd();
  else updateEndButton();
}

// A long answer takes long to lay out. Changes that arrive meanwhile are applied together, after a pause in which
// the page answers the reader.
const PAUSE_PER_WORK = 3;
let queuedChanges = [], isApplying = false;

async function queueChanges(changes) {
  queuedChanges.push(...changes);
  if (isApplying) return;
  isApplying = true;
  try {
    while (queuedChanges.length) {
      // Replacing an element between press and release would swallow the click.
      await pointerReleased;
      const start = performance.now();
      applyChanges(queuedChanges.splice(0));
      const milliseconds = PAUSE_PER_WORK * (performance.now() - start);
      if (milliseconds > 50) await new Promise((resolve) => setTimeout(resolve, milliseconds));
    }
  } finally {
    isApplying = false;
  }
}

async function openChatStream() {
  const canOpen = () => isPageVisible() && !isStreamOpen(chatStream) && chat?.dataset.stream;
  if (!canOpen()) return;
  const hasSlot = await acquireStreamSlot();
  if (!canOpen()) return isPageVisible() || releaseStreamSlot();
  chatStream = new EventSource(`${chat.dataset.stream}?after=${lastEventId}${hasSlot ? "" : "&wait=false"}`);
  // Without a slot, the stream ends after the changes so far, and the browser opens it again a few seconds later.
  if (!hasSlot) chatStream.addEventListener("error", useFreeSlot);
  chatStream.addEventListener("changes", (event) => {
    // Set first, so that a stream that is reopened meanwhile does not send these changes again.
    lastEventId = Number(event.lastEventId);
    queueChanges(JSON.parse(event.data));
  });
  chatStream.addEventListener("gone", () => {
    closeChatStream();
    delete chat.dataset.stream;
    showAlert(parseElement('<div class="alert bad" role="alert"><p>This chat was deleted.</p></div>'));
  });
  keepStreamOpen(chatStream, openChatStream, (error) => showAlert(createErrorAlert(error)));
}

function closeChatStream() {
  chatStream?.close();
  chatStream = null;
  releaseStreamSlot();
}

async function useFreeSlot({ target }) {
  if (!(await acquireStreamSlot()) || chatStream !== target) return;
  chatStream.close();
  openChatStream();
}

// Browsers limit the number of streams across all windows, so hidden pages close theirs.
document.addEventListener("visibilitychange", () => (isPageVisible() ? openChatStream() : closeChatStream()));
addEventListener("pagehide", closeChatStream);

// Scroll position: new content scrolls the page only if it was at the end.

function updateEndButton() {
  const button = $("[data-to-end]");
  if (button) button.hidden = isAtEnd();
}
addEventListener("scroll", () => {
  followsEnd = isAtEnd();
  updateEndButton();
}, { passive: true });

if (chat?.dataset.stream) new ResizeObserver(() => followsEnd && scrollToEnd()).observe($(".dock"));
document.addEventListener("load", ({ target }) => target.matches?.(".pictures img") && followsEnd && scrollToEnd(), true);
// Not every fragment: the beginning of a result that the reader opened should stay in view.
document.addEventListener("fragmentload", ({ target }) => target.matches(".ask") && followsEnd && scrollToEnd());

// Submits forms without leaving the page. Their effects arrive over the event stream.

let pendingSubmission = null;

// Replaces only children that changed, so that a link that is being pressed stays.
function replaceChangedChildren(oldElement, newElement) {
  const pairs = [...oldElement.children].map((child, index) => [child, newElement.children[index]]);
  if (pairs.length !== newElement.children.length) replaceElement(oldElement, newElement);
  else pairs.forEach(([oldChild, newChild]) => oldChild.isEqualNode(newChild) || replaceElement(oldChild, newChild));
}

async function submitInPlace(form, button) {
  const busyElement = button || form, mode = button?.dataset.submitMode ?? form.dataset.submitMode;
  if (busyElement.getAttribute("aria-busy") === "true") {
    // A setting that is changed while an earlier change is pending is sent after it.
    if (mode === "settings") form.dataset.changed = "yes";
    return pendingSubmission;
  }
  const data = new URLSearchParams(new FormData(form, button));
  busyElement.setAttribute("aria-busy", "true");
  try {
    const response = await postForm(actionUrl(form, button), data, FRAGMENT_REQUEST);
    if (response.redirected) return location.assign(response.url);
    const result = await readPage(response), body = result.page.body;
    if (!response.ok && (body.querySelector("main") || !body.querySelector(":scope > [id]"))) return showAlert(createResponseAlert(result));
    $("#alerts").replaceChildren();
    // Settings that were changed since are not overwritten.
    if (form.dataset.changed) return;
    for (const newElement of [...body.children]) {
      const oldElement = newElement.id && document.getElementById(newElement.id);
      if (oldElement) (mode === "settings" ? replaceChangedChildren : replaceElement)(oldElement, newElement);
    }
    if (response.ok && mode === "clear") clearMessageForm(form, data);
    if (response.ok && mode === "close") $("#dialog").close();
    // The user's own action: its effects should be in view, even if the page was scrolled up before.
    if (response.ok && mode !== "stay") followsEnd = true;
  } catch (error) {
    showAlert(createErrorAlert(error));
  } finally {
    busyElement.removeAttribute("aria-busy");
    if (form.dataset.changed) {
      delete form.dataset.changed;
      await (pendingSubmission = submitInPlace(form, button));
    }
  }
}

function showAlert(alert) {
  $("#alerts").replaceChildren(document.adoptNode(alert));
}

// Keeps text and attachments that were added while the message was being sent.
function clearMessageForm(form, data) {
  const box = $("textarea", form), sentText = data.get("text");
  if (box.value.startsWith(sentText)) box.value = box.value.slice(sentText.length);
  box.focus();
  form.dispatchEvent(new CustomEvent("sent", { detail: data.getAll("attachment") }));
  scrollToEnd();
}

// Not the maxlength attribute, because browsers silently cut off pasted text that exceeds it.
document.addEventListener("input", ({ target }) => {
  const maxLength = Number(target.dataset.maxLength);
  if (!maxLength) return;
  // Counted in characters as the server does, not in UTF-16 units; only if the cheap length exceeds the limit.
  const count = target.value.length > maxLength ? [...target.value].length : 0;
  target.setCustomValidity(count > maxLength ? `The message has ${count.toLocaleString("en")} characters; the limit is ${maxLength.toLocaleString("en")}. Split it into several messages, or put the text in a workspace file.` : "");
});

document.addEventListener("submit", (event) => {
  const form = event.target, button = event.submitter;
  if (event.defaultPrevented || button?.dataset.swap !== undefined) return;
  const mode = button?.dataset.submitMode ?? form.dataset.submitMode;
  if (mode === undefined || mode === "go") return;
  event.preventDefault();
  pendingSubmission = submitInPlace(form, button);
});

document.addEventListener("change", ({ target }) => {
  if (target.matches("[data-submit]")) target.form.requestSubmit();
});

// Drafts: unsent text is restored when the page is opened again in the same window.

const messageBox = $("#text"), draftKey = `draft ${userName(document)} ${location.pathname}`;
let isMessageSent = false;

if (messageBox && !messageBox.value) messageBox.value = sessionStorage.getItem(draftKey) || "";
addEventListener("submit", ({ defaultPrevented, target }) => (isMessageSent = !defaultPrevented && target === messageBox?.form));
addEventListener("pagehide", () => {
  if (!messageBox) return;
  if (messageBox.value && !isMessageSent) sessionStorage.setItem(draftKey, messageBox.value);
  else sessionStorage.removeItem(draftKey);
});

// Fragments that are loaded on request.

const fetchFragment = async (url, id) => (await fetchPage(url, FRAGMENT_REQUEST)).page.getElementById(id);

const formQuery = (form) => String(new URLSearchParams(new FormData(form)));

const findTools = debounce(150, async (form) => {
  const query = formQuery(form);
  const newList = await fetchFragment(`${actionUrl(form)}?${query}`, "console-list").catch(() => showAlert(createErrorAlert()));
  const oldList = $("#console-list");
  // A tool may have been chosen or the query changed since.
  if (newList && oldList && query === formQuery(form)) replaceElement(oldList, newList);
});
document.addEventListener("input", ({ target }) => {
  const form = target.closest("form[data-find]");
  if (form) findTools(form);
});
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-find]")) return;
  event.preventDefault();
  $("#console-list a")?.click();
});

async function loadEarlierTurns(link) {
  const earlier = await fetchFragment(link.href, "earlier-turns"), firstTurn = $("#turns").firstElementChild;
  const top = firstTurn.getBoundingClientRect().top;
  $("#earlier").replaceWith(document.adoptNode($("#earlier", earlier)));
  const turns = $$(":scope > .turn", earlier);
  $("#turns").prepend(...turns);
  turns.forEach(enhanceMessages);
  turns.forEach(activateElements);
  // The turns above push the page down: scroll by the same distance, so that the reader stays in place.
  scrollBy(0, firstTurn.getBoundingClientRect().top - top);
  announce(`${turns.length} earlier turns`);
  observeEarlierLink();
}

// Earlier turns are loaded before the reader reaches them. If that fails, the link is still there.
const earlierObserver = new IntersectionObserver(async ([entry]) => {
  const link = $("a", entry.target);
  if (!entry.isIntersecting || !link || link.getAttribute("aria-busy")) return;
  link.setAttribute("aria-busy", "true");
  await loadEarlierTurns(link).catch(() => link.removeAttribute("aria-busy"));
}, { rootMargin: "800px 0px 0px" });

function observeEarlierLink() {
  earlierObserver.disconnect();
  if ($("#earlier a")) earlierObserver.observe($("#earlier"));
}

let lastConsoleRequestId = 0;

const CHAT_ACTIONS = {
  "a[data-console]": async (link) => {
    const requestId = ++lastConsoleRequestId, newConsole = await fetchFragment(link.href, "console");
    if (requestId !== lastConsoleRequestId) return;
    replaceElement($("#console"), newConsole);
    $("#console :is(input:not([type=hidden]), textarea, select)")?.focus();
  },
  "a[data-panel]": async (link) => {
    // Wait for a pending change of settings, which affects the panel.
    await pendingSubmission;
    $("#dialog").replaceChildren(document.adoptNode(await fetchFragment(link.href, "panel")));
    $("#dialog h1").id = "dialog-title";
    if (!$("#dialog").open) $("#dialog").showModal();
  },
  "a[data-earlier]": loadEarlierTurns,
  "a[data-older]": async (link) => {
    const older = await fetchFragment(link.href, "chat-list"), entries = $$(".chat-list > li", older), nextLink = $("[data-older]", older);
    $("#chat-list > .chat-list").append(...entries);
    nextLink ? link.replaceWith(nextLink) : link.parentElement.remove();
    $("a", entries[0])?.focus();
    announce(`${entries.length} older chats`);
  },
  "[data-to-end]": () => {
    followsEnd = true;
    scrollToEnd();
  },
  "[data-copy-turn]": async (button) => {
    const texts = $$(".answer .md", button.closest(".turn")).map((answer) => answer.innerText.trim());
    await copyText(texts.filter(Boolean).join("\n\n"));
  },
};

runOnClick(CHAT_ACTIONS, () => showAlert(createErrorAlert()));

// Additions to the server's HTML: copy buttons for code, and times in the local time zone.

let timeFormat;

function enhanceMessages(root) {
  for (const pre of $$(".md pre", root)) {
    if (pre.parentElement.matches(".code-frame")) continue;
    const frame = Object.assign(document.createElement("div"), { className: "code-frame" });
    const button = parseElement('<button type="button" class="button quiet small" data-copy aria-label="Copy code"><svg class="icon" aria-hidden="true"><use href="#i-copy"/></svg></button>');
    pre.replaceWith(frame);
    frame.append(button, pre);
  }
  for (const time of $$("time.message-time", root)) {
    timeFormat ??= new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" });
    time.textContent = timeFormat.format(new Date(time.dateTime));
  }
}

// Keyboard shortcuts.

const isTextField = (target) => target.closest?.("input, textarea, select, [contenteditable]");
const touchScreen = matchMedia("(pointer: coarse) and (hover: none)");

document.addEventListener("keydown", (event) => {
  const { key, target } = event, hasNoModifier = !event.ctrlKey && !event.metaKey && !event.altKey;
  // With an input method, Enter confirms the composed characters and must not send the message.
  if (event.isComposing || $("#dialog").open) return;
  if (key === "Enter" && target.id === "text" && hasNoModifier && !event.shiftKey && !touchScreen.matches) {
    event.preventDefault();
    if (chat.dataset.state === "idle" && target.value.trim()) target.form.requestSubmit();
  } else if (key === "Escape" && !$("[popover]:popover-open, details.more[open]") && chat?.dataset.state !== "idle") {
    // In other fields, Escape closes the browser's suggestions or clears the field.
    if (isTextField(target) && target.id !== "text") return;
    event.preventDefault();
    $("#stop")?.click();
  } else if (key === "/" && hasNoModifier && !isTextField(target)) {
    event.preventDefault();
    ($("#text") || $("#console input[type=search]") || $("#console a[data-console]"))?.focus();
  } else if (key === "?" && hasNoModifier && !isTextField(target)) {
    event.preventDefault();
    $("#keys").togglePopover();
  }
});

// After the page is ready: the first format of a time takes as long as everything else here.
setTimeout(enhanceMessages, 0, document);
if (chat?.dataset.stream) {
  openChatStream();
  // With the next frame, which needs the layout of the page anyway.
  requestAnimationFrame(() => {
    if (!location.hash || location.hash === "#end") scrollToEnd();
    // After the first message of a chat, one can go on typing. On a touch screen, this would open the keyboard.
    if (location.hash === "#end" && !touchScreen.matches) $("#text")?.focus({ preventScroll: true });
    observeEarlierLink();
  });
}
