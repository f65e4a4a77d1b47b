// Badges, the count in the window's title and notifications, for items that wait for the person.
"use strict";

const VISIBLE_POLL_SECONDS = 10, HIDDEN_POLL_SECONDS = 30, MAX_HIDDEN_POLL_SECONDS = 600, LONG_TURN_SECONDS = 20;
const PAGE_OF_KIND = { waiting_chat: "/ui/chat", approval: "/ui/approvals", question: "/ui/approvals", proposal: "/ui/admin/proposals" };
const PENDING_PAGES = new Set(Object.values(PAGE_OF_KIND));
const NOTIFICATION_TEXTS = {
  waiting_chat: "This chat is waiting for you.",
  approval: "This call needs your approval.",
  question: "This server asks you a question.",
  proposal: "Somebody proposes this server.",
};

let knownItems = null, shownItemKeys = "", waitingCount = 0, pollTimer = 0, hiddenPollSeconds = HIDDEN_POLL_SECONDS;
const runningSince = new Map();

async function loadPending() {
  clearTimeout(pollTimer);
  const response = await fetch("/api/v1/pending").catch(() => null);
  // Signed out: do not poll again before the next page is loaded.
  if (response?.status === 401) return;
  const pending = response?.ok ? await response.json().catch(() => null) : null;
  if (pending) showPending(pending.items);
  clearTimeout(pollTimer);
  pollTimer = setTimeout(loadPending, nextPollSeconds() * 1000);
}

// A hidden tab polls less and less often, unless the person wants notifications.
function nextPollSeconds() {
  if (!document.hidden) hiddenPollSeconds = HIDDEN_POLL_SECONDS;
  if (!document.hidden) return VISIBLE_POLL_SECONDS;
  const seconds = hiddenPollSeconds;
  if (!wantsNotifications()) hiddenPollSeconds = Math.min(2 * hiddenPollSeconds, MAX_HIDDEN_POLL_SECONDS);
  return seconds;
}

function showPending(items) {
  const waiting = items.filter((item) => PAGE_OF_KIND[item.kind]);
  for (const page of PENDING_PAGES) showBadge(page, waiting.filter((item) => PAGE_OF_KIND[item.kind] === page).length);
  $(".open-nav")?.toggleAttribute("data-pending", waiting.length > 0);
  if (knownItems && waiting.length > waitingCount) announce(`${waiting.length} waiting for you`);
  waitingCount = waiting.length;
  showTitle();
  // The page may list these items, but not those that were added while it was loading.
  const itemKeys = waiting.map((item) => `${item.kind} ${item.id} ${item.since}`).join();
  if (itemKeys !== shownItemKeys && (knownItems || PENDING_PAGES.has(location.pathname))) refresh();
  shownItemKeys = itemKeys;
  const newItems = waiting.filter((item) => knownItems && !knownItems.has(`${item.kind} ${item.id}`));
  knownItems = new Set(waiting.map((item) => `${item.kind} ${item.id}`));
  newItems.forEach((item) => showNotification(item, NOTIFICATION_TEXTS[item.kind]));
  notifyFinished(items);
}

function showBadge(page, count) {
  const link = $(`.nav a[href="${page}"]`);
  if (!link) return;
  $(".badge", link)?.remove();
  if (!count) return;
  const badge = Object.assign(document.createElement("span"), { className: "badge", textContent: count > 99 ? "99+" : count });
  badge.append(Object.assign(document.createElement("span"), { className: "visually-hidden", textContent: " waiting for you" }));
  link.append(badge);
}

function showTitle() {
  const title = document.title.replace(/^\(\d+\) /, ""), countedTitle = waitingCount ? `(${waitingCount}) ${title}` : title;
  if (document.title !== countedTitle) document.title = countedTitle;
}

// A turn that ends after a while is worth a notification, because the person has probably left the page.
function notifyFinished(items) {
  const running = new Set(items.filter((item) => item.kind === "running_chat").map((item) => item.id));
  for (const [id, { item, since }] of runningSince) {
    if (running.has(id)) continue;
    runningSince.delete(id);
    const isWaiting = items.some((other) => other.id === id);
    if (!isWaiting && Date.now() - since >= LONG_TURN_SECONDS * 1000) showNotification(item, "The turn is finished.");
  }
  for (const item of items) if (running.has(item.id) && !runningSince.has(item.id)) runningSince.set(item.id, { item, since: Date.now() });
}

// Notifications, which the person turns on by a button.

const canNotify = () => "Notification" in window && isSecureContext;
const wantsNotifications = () => canNotify() && Notification.permission === "granted" && localStorage.getItem("notify") === "on";

function showNotification(item, text) {
  if (!document.hidden || !wantsNotifications()) return;
  // Windows of the same person share the tag, so that only one notification is shown.
  const notification = new Notification(item.title || "New chat", { body: text, tag: `${item.kind} ${item.id}`, icon: "/static/icon.svg" });
  notification.onclick = () => {
    focus();
    location.assign(item.page);
    notification.close();
  };
}

function showNotificationButton() {
  const button = $("[data-notify]");
  if (!button) return;
  button.hidden = !canNotify();
  button.setAttribute("aria-pressed", String(wantsNotifications()));
}

document.addEventListener("click", async ({ target }) => {
  if (!target.closest?.("[data-notify]")) return;
  const turnOn = !wantsNotifications();
  const allowed = !turnOn || (await Notification.requestPermission()) === "granted";
  localStorage.setItem("notify", turnOn && allowed ? "on" : "off");
  showNotificationButton();
  if (allowed) announce(turnOn ? "Notifications are on" : "Notifications are off");
  else showError(new RequestError("Your browser blocks notifications from this site. Allow them in its settings for this site, then try again."));
});

// Turned on or off in another window.
addEventListener("storage", showNotificationButton);
document.addEventListener("visibilitychange", loadPending);
// The form may have resolved a pending item.
document.addEventListener("submit", () => setTimeout(loadPending, 1000));
new MutationObserver(showTitle).observe($("title"), { childList: true });
// Enhancements replace the navigation with the page.
new MutationObserver(() => {
  showNotificationButton();
  loadPending();
}).observe(document.body, { childList: true });
if ($("#chat")) new MutationObserver(loadPending).observe($("#chat"), { attributeFilter: ["data-state"] });
showNotificationButton();
loadPending();
