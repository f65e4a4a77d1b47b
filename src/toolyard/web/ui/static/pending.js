// Badges, the count in the window's title and notifications, for whatever waits for the person.
"use strict";

const VISIBLE_SECONDS = 10, HIDDEN_SECONDS = 30, MAX_HIDDEN_SECONDS = 600, LONG_TURN_SECONDS = 20;
const PLACES = { waiting_chat: "/ui/chat", approval: "/ui/approvals", question: "/ui/approvals", proposal: "/ui/admin/proposals" };
const WORDS = {
  waiting_chat: "This chat is waiting for you.",
  approval: "This call needs your approval.",
  question: "This server asks you a question.",
  proposal: "Somebody proposes this server.",
};

let known = null, waiting = 0, timer = 0, hiddenSeconds = HIDDEN_SECONDS;
const runningSince = new Map();

async function loadPending() {
  clearTimeout(timer);
  const response = await fetch("/api/v1/pending").catch(() => null);
  // Signed out: the next page starts again.
  if (response?.status === 401) return;
  if (response?.ok) showPending((await response.json()).items);
  clearTimeout(timer);
  timer = setTimeout(loadPending, nextDelay() * 1000);
}

// A hidden tab asks less and less often, unless the person wants notifications.
function nextDelay() {
  if (!document.hidden) hiddenSeconds = HIDDEN_SECONDS;
  if (!document.hidden) return VISIBLE_SECONDS;
  const seconds = hiddenSeconds;
  if (!wantsNotices()) hiddenSeconds = Math.min(2 * hiddenSeconds, MAX_HIDDEN_SECONDS);
  return seconds;
}

function showPending(items) {
  const open = items.filter((one) => PLACES[one.kind]);
  for (const place of new Set(Object.values(PLACES))) showBadge(place, open.filter((one) => PLACES[one.kind] === place).length);
  $(".open-nav")?.toggleAttribute("data-pending", open.length > 0);
  if (known && open.length > waiting) say(`${open.length} waiting for you`);
  waiting = open.length;
  showTitle();
  const fresh = open.filter((one) => known && !known.has(`${one.kind} ${one.id}`));
  known = new Set(open.map((one) => `${one.kind} ${one.id}`));
  fresh.forEach((one) => notify(one, WORDS[one.kind]));
  notifyFinished(items);
}

function showBadge(place, count) {
  const link = $(`.nav a[href="${place}"]`);
  if (!link) return;
  $(".badge", link)?.remove();
  if (!count) return;
  const badge = Object.assign(document.createElement("span"), { className: "badge", textContent: count > 99 ? "99+" : count });
  badge.append(Object.assign(document.createElement("span"), { className: "unseen", textContent: " waiting for you" }));
  link.append(badge);
}

function showTitle() {
  const plain = document.title.replace(/^\(\d+\) /, ""), wanted = waiting ? `(${waiting}) ${plain}` : plain;
  if (document.title !== wanted) document.title = wanted;
}

// A turn that ends after a while is worth a notification, because the person has probably left the page.
function notifyFinished(items) {
  const running = new Set(items.filter((one) => one.kind === "running_chat").map((one) => one.id));
  for (const [id, { item, since }] of runningSince) {
    if (running.has(id)) continue;
    runningSince.delete(id);
    const waits = items.some((one) => one.id === id);
    if (!waits && Date.now() - since >= LONG_TURN_SECONDS * 1000) notify(item, "The turn is finished.");
  }
  for (const item of items) if (running.has(item.id) && !runningSince.has(item.id)) runningSince.set(item.id, { item, since: Date.now() });
}

// Notifications, which the person turns on by a button.

const canNotify = () => "Notification" in window && isSecureContext;
const wantsNotices = () => canNotify() && Notification.permission === "granted" && localStorage.getItem("notify") === "on";

function notify(item, text) {
  if (!document.hidden || !wantsNotices()) return;
  // Windows of the same person share the tag, so that only one notification is shown.
  const notice = new Notification(item.title || "New chat", { body: text, tag: `${item.kind} ${item.id}`, icon: "/static/icon.svg" });
  notice.onclick = () => {
    focus();
    location.assign(item.page);
    notice.close();
  };
}

function showSwitch() {
  const button = $("[data-notify]");
  if (!button) return;
  button.hidden = !canNotify();
  button.setAttribute("aria-pressed", String(wantsNotices()));
}

document.addEventListener("click", async ({ target }) => {
  if (!target.closest?.("[data-notify]")) return;
  const turnOn = !wantsNotices();
  const allowed = !turnOn || (await Notification.requestPermission()) === "granted";
  localStorage.setItem("notify", turnOn && allowed ? "on" : "off");
  showSwitch();
  say(turnOn ? (allowed ? "Notifications are on" : "Your browser blocks notifications from this site") : "Notifications are off");
});

document.addEventListener("visibilitychange", loadPending);
// The page may have answered something.
document.addEventListener("submit", () => setTimeout(loadPending, 1000));
new MutationObserver(showTitle).observe($("title"), { childList: true });
// Enhancements replace the navigation with the page.
new MutationObserver(() => {
  showSwitch();
  loadPending();
}).observe(document.body, { childList: true });
if ($("#chat")) new MutationObserver(loadPending).observe($("#chat"), { attributeFilter: ["data-state"] });
showSwitch();
loadPending();
