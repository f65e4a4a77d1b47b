// Requests to the server, and messages about failed ones. Loaded before the other scripts.
"use strict";

async function ask(url, options = {}) {
  return read(await fetch(url, options));
}

async function read(response) {
  const text = await response.text(), isPlain = response.headers.get("content-type")?.startsWith("text/plain");
  const page = new DOMParser().parseFromString(text, "text/html");
  await letGo;
  return { page, url: response.url, ok: response.ok, said: isPlain ? text : "" };
}

// The response is not a page. The message is the server's plain text, or empty if a proxy responded.
class Refused extends Error {}

// A page may outlive its sign-in, after a sign-out in another window or overnight.

class SignedOut extends Error {}

// The live stream of the page is refused, because too many are open.
class Paused extends Refused {}

const isSignIn = (url) => new URL(url).pathname === "/ui/sign-in";
const who = (root) => $(".who-name", root)?.textContent;

// Updates the CSRF tokens of the page's forms, if the same person is still signed in.
async function renew() {
  const { page, url } = await ask(location.href);
  if (isSignIn(url) || (who(page) && who(page) !== who(document))) throw new SignedOut();
  const proof = $("#act [name=csrf]", page).value;
  $$("[name=csrf]").forEach((one) => (one.value = proof));
  return proof;
}

// Each page masks its CSRF token differently: the first half is XORed with the second, digit by digit.
function unmasked(proof) {
  const half = proof.length / 2;
  return Array.from({ length: half }, (_, at) => parseInt(proof[at], 16) ^ parseInt(proof[at + half], 16)).join();
}

async function post(url, data, options) {
  const sent = () => fetch(url, { method: "POST", body: data, ...options });
  const response = await sent();
  if (response.status !== 403 && !isSignIn(response.url)) return response;
  const proof = await renew();
  if (unmasked(proof) === unmasked(data.get("csrf") ?? "")) return response;
  data.set("csrf", proof);
  return sent();
}

async function isSignedOut() {
  const { status } = await fetch("/api/v1/me").catch(() => ({}));
  return status === 401;
}

// Returns an alert about an error, to be shown near the form.
function trouble(error) {
  const alert = Object.assign(document.createElement("div"), { className: "alert bad", role: "alert" });
  const out = error instanceof SignedOut;
  if (out || error instanceof Paused) alert.id = out ? "signed-out" : "paused";
  alert.innerHTML = out
    ? '<p>You are signed out. Nothing you typed is lost: <a href="/ui/sign-in" target="_blank">sign in</a> in another window, then continue here.</p>'
    : '<p class="said">Toolyard is not responding. Nothing you typed is lost: try again.</p>';
  if (error instanceof Refused && error.message) $(".said", alert).textContent = error.message;
  return alert;
}

const isOpen = (source) => source && source.readyState !== EventSource.CLOSED;

// Browsers reconnect an EventSource after a network error, but not after an error response, such as that of a proxy
// while the server restarts, or 401 after a sign-out. Reopen it in those cases.
function keepOpen(source, open, tell) {
  source.addEventListener("open", () => $$("#signed-out, #paused").forEach((one) => one.remove()));
  source.addEventListener("error", async () => {
    if (isOpen(source)) return;
    const out = await isSignedOut(), paused = !out && (await isRefused(source.url));
    if (out && !$("#signed-out")) tell(new SignedOut());
    if (paused && !$("#paused")) tell(new Paused(PAUSED));
    setTimeout(open, out || paused ? 15000 : 3000);
  });
}

const PAUSED = "Live updates are paused: too many pages and clients are open. Close some that you no longer need; this page then continues.";

// An EventSource does not tell the status of a response.
async function isRefused(url) {
  const stop = new AbortController();
  const { status } = await fetch(url, { signal: stop.signal }).catch(() => ({}));
  stop.abort();
  return status === 429;
}
