// Requests to the server, and messages about failed ones. Loaded before the other scripts.
"use strict";

// Returns the document, URL and status of a response, and its text as a message if it is plain text.
async function fetchPage(url, options = {}) {
  return readPage(await fetch(url, options));
}

async function readPage(response) {
  const text = await response.text(), isPlain = response.headers.get("content-type")?.startsWith("text/plain");
  const page = new DOMParser().parseFromString(text, "text/html");
  await pointerReleased;
  return { page, url: response.url, ok: response.ok, message: isPlain ? text : "" };
}

// The response is not a page. The message is the server's plain text, or empty if a proxy responded.
class RequestError extends Error {}

// The sign-in may end while a page is open: overnight, or by a sign-out in another window.
class SignedOutError extends Error {}

// The server refuses the event stream of the page, because too many are open.
class StreamLimitError extends RequestError {}

const isSignInUrl = (url) => new URL(url).pathname === "/ui/sign-in";
const userName = (root) => $(".account-name", root)?.textContent;

// Updates the CSRF tokens of the page's forms, if the same person is still signed in.
async function renewCsrfTokens() {
  const { page, url } = await fetchPage(location.href);
  if (isSignInUrl(url) || (userName(page) && userName(page) !== userName(document))) throw new SignedOutError();
  const token = $("#action-form [name=csrf]", page).value;
  $$("[name=csrf]").forEach((input) => (input.value = token));
  return token;
}

// Each page masks its CSRF token differently: the first half is XORed with the second, digit by digit.
function unmaskToken(token) {
  const half = token.length / 2;
  return Array.from({ length: half }, (_digit, index) => parseInt(token[index], 16) ^ parseInt(token[index + half], 16)).join();
}

async function postForm(url, data, options) {
  const sendRequest = () => fetch(url, { method: "POST", body: data, ...options });
  const response = await sendRequest();
  if (response.status !== 403 && !isSignInUrl(response.url)) return response;
  const token = await renewCsrfTokens();
  if (unmaskToken(token) === unmaskToken(data.get("csrf") ?? "")) return response;
  data.set("csrf", token);
  return sendRequest();
}

async function isSignedOut() {
  const { status } = await fetch("/api/v1/me").catch(() => ({}));
  return status === 401;
}

// Returns an alert about an error, to be shown near the form.
function createErrorAlert(error) {
  const alert = Object.assign(document.createElement("div"), { className: "alert bad", role: "alert" });
  const signedOut = error instanceof SignedOutError;
  if (signedOut || error instanceof StreamLimitError) alert.id = signedOut ? "signed-out" : "paused";
  alert.innerHTML = signedOut
    ? '<p>You are signed out. Nothing you typed is lost: <a href="/ui/sign-in" target="_blank">sign in</a> in another window, then continue here.</p>'
    : '<p class="alert-text">Toolyard is not responding. Nothing you typed is lost: try again.</p>';
  if (error instanceof RequestError && error.message) $(".alert-text", alert).textContent = error.message;
  return alert;
}

// Returns an alert about a failed response: that of the page, or one with the text of an error page.
function createResponseAlert({ page, message }) {
  const texts = $$(".empty > :is(.prose, .hint)", page).map((element) => element.textContent.trim());
  return $(".alert", page) || createErrorAlert(new RequestError(message || texts.join(" ")));
}

// Browsers allow six connections to a server across all windows, and each event stream takes one. Four windows may have
// one at a time, so that requests are never blocked. The others poll until a stream is closed.
const STREAM_SLOTS = ["stream 1", "stream 2", "stream 3", "stream 4"];
let streamSlot = null;

// Resolves to a function that releases the slot, or null if another window holds it.
const lockSlot = (name) => new Promise((resolve) => {
  navigator.locks.request(name, { ifAvailable: true }, (lock) => (lock ? new Promise((release) => resolve(release)) : resolve(null)));
});

async function lockFreeSlot() {
  // Over plain http, except from this machine, browsers do not offer locks.
  if (!navigator.locks) return () => {};
  for (const name of STREAM_SLOTS) {
    const release = await lockSlot(name);
    if (release) return release;
  }
  return null;
}

// Returns whether the page may keep a stream open.
async function acquireStreamSlot() {
  const slot = (streamSlot ??= lockFreeSlot()), acquired = Boolean(await slot);
  if (!acquired && streamSlot === slot) streamSlot = null;
  return acquired;
}

function releaseStreamSlot() {
  streamSlot?.then((release) => release?.());
  streamSlot = null;
}

const isStreamOpen = (stream) => stream && stream.readyState !== EventSource.CLOSED;

// Browsers reconnect an EventSource after a network error, but not after an error response, such as that of a proxy
// while the server restarts, or 401 after a sign-out. Reopen it in those cases.
function keepStreamOpen(stream, reopen, showError) {
  stream.addEventListener("open", () => $$("#signed-out, #paused").forEach((alert) => alert.remove()));
  stream.addEventListener("error", async () => {
    if (isStreamOpen(stream)) return;
    const signedOut = await isSignedOut(), overLimit = !signedOut && (await isOverStreamLimit(stream.url));
    if (signedOut && !$("#signed-out")) showError(new SignedOutError());
    if (overLimit && !$("#paused")) showError(new StreamLimitError(STREAM_LIMIT_MESSAGE));
    setTimeout(reopen, signedOut || overLimit ? 15000 : 3000);
  });
}

const STREAM_LIMIT_MESSAGE = "Live updates are paused: too many pages and clients are open. Close some that you no longer need; this page then continues.";

// An EventSource does not expose the status of a response.
async function isOverStreamLimit(url) {
  const controller = new AbortController();
  const { status } = await fetch(url, { signal: controller.signal }).catch(() => ({}));
  controller.abort();
  return status === 429;
}
