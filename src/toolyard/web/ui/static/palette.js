// Ctrl+K or ⌘K opens the search page as a palette over the current page.
"use strict";

const PALETTE_HTML = `<div id="palette" class="palette"><h1 class="visually-hidden" id="dialog-title">Search</h1>
<div class="search"><svg class="icon" aria-hidden="true"><use href="#i-search"/></svg><input type="search" id="palette-query" placeholder="Search pages, chats, servers and tools" aria-label="Search pages, chats, servers and tools" autocomplete="off" maxlength="200"></div>
<div id="palette-list" class="palette-list"></div></div>`;

// Shows the field before the list is loaded, so that no typed text is lost.
function openPalette() {
  if ($("#dialog").open) return;
  $("#dialog").innerHTML = PALETTE_HTML;
  $("#dialog").showModal();
  $("#palette-query").focus();
  searchPalette($("#palette-query")).catch(() => location.assign("/ui/search"));
}

// The arrow keys move between the search field and the links, which keep the usual keys of links.
function movePaletteFocus(event) {
  const links = $$("#palette-list a"), index = links.indexOf(document.activeElement);
  const nextIndex = event.key === "ArrowDown" ? index + 1 : event.key === "ArrowUp" ? index - 1 : null;
  if (nextIndex === null) return;
  event.preventDefault();
  (links[nextIndex] ?? (nextIndex < 0 ? $("#palette-query") : links[0]))?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.key === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey) {
    event.preventDefault();
    openPalette();
  } else if (event.target.closest?.("#palette")) {
    if (event.key === "Escape") {
      // In a search field, the browser would only clear the text.
      if ($("#dialog").open) event.preventDefault();
      $("#dialog").close();
    } else if (event.key === "Enter" && event.target.id === "palette-query") {
      event.preventDefault();
      const input = event.target;
      // Only a link of the list for this query: an earlier list may be shown while it is loading.
      searchPalette(input)
        .then(() => input.dataset.shown === input.value && $("#palette-list a")?.click())
        .catch(() => location.assign(`/ui/search?q=${encodeURIComponent(input.value)}`));
    } else movePaletteFocus(event);
  }
});

async function searchPalette(input) {
  const query = input.value;
  if (input.dataset.shown === query) return;
  const newList = (await fetchPage(`/ui/search?q=${encodeURIComponent(query)}`, FRAGMENT_REQUEST)).page.getElementById("palette-list");
  if (!input.isConnected || input.value !== query || !newList) return;
  input.dataset.shown = query;
  replaceElement($("#palette-list"), newList);
  announce(`${$$("#palette-list a").length} found`);
}

const searchPaletteDebounced = debounce(120, (input) => searchPalette(input).catch(() => {}));

// In the dialog, the page behind must keep its address, so that the form's own search is not used.
document.addEventListener("input", (event) => {
  if (event.target.id !== "palette-query" || !$("#dialog").contains(event.target)) return;
  event.stopImmediatePropagation();
  searchPaletteDebounced(event.target);
}, true);

document.addEventListener("click", (event) => {
  if (!event.target.closest?.("[data-palette]") || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  openPalette();
}, true);
