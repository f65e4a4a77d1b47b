// Ctrl+K or ⌘K opens the search page as a palette over the current page.
"use strict";

const FRAME = `<div id="palette" class="palette"><h1 class="unseen" id="dialog-title">Search</h1>
<div class="search"><svg class="icon" aria-hidden="true"><use href="#i-search"/></svg><input type="search" id="palette-query" placeholder="Search pages, chats, servers and tools" aria-label="Search pages, chats, servers and tools" autocomplete="off" maxlength="200"></div>
<div id="palette-list" class="palette-list"></div></div>`;

// The field is there at once, so that nothing is lost that is typed before the list has arrived.
function openPalette() {
  if ($("#dialog").open) return;
  $("#dialog").innerHTML = FRAME;
  $("#dialog").showModal();
  $("#palette-query").focus();
  searchPalette($("#palette-query")).catch(() => location.assign("/ui/search"));
}

// The arrow keys move between the search field and the links, which keep the usual keys of links.
function move(event) {
  const links = $$("#palette-list a"), at = links.indexOf(document.activeElement);
  const next = event.key === "ArrowDown" ? at + 1 : event.key === "ArrowUp" ? at - 1 : null;
  if (next === null) return;
  event.preventDefault();
  (links[next] ?? (next < 0 ? $("#palette-query") : links[0]))?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.key === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey) {
    event.preventDefault();
    openPalette();
  } else if (event.target.closest?.("#palette")) {
    if (event.key === "Enter" && event.target.id === "palette-query") {
      event.preventDefault();
      searchPalette(event.target).then(() => $("#palette-list a")?.click());
    } else move(event);
  }
});

async function searchPalette(input) {
  const asked = input.value;
  if (input.dataset.shown === asked) return;
  const fresh = (await ask(`/ui/search?q=${encodeURIComponent(asked)}`, PART)).page.getElementById("palette-list");
  if (!input.isConnected || input.value !== asked || !fresh) return;
  input.dataset.shown = asked;
  put($("#palette-list"), fresh);
  say(`${$$("#palette-list a").length} found`);
}

const searchPaletteSoon = later(120, (input) => searchPalette(input).catch(() => {}));

// In the dialog, the page behind must keep its address, so that the form's own search is not used.
document.addEventListener("input", (event) => {
  if (event.target.id !== "palette-query" || !$("#dialog").contains(event.target)) return;
  event.stopImmediatePropagation();
  searchPaletteSoon(event.target);
}, true);

document.addEventListener("click", (event) => {
  if (!event.target.closest?.("[data-palette]") || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  openPalette();
}, true);
