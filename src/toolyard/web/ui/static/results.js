// Enhancements for results: switching views and loading more in place, copying tables, and large pictures.
"use strict";

const viewAt = async (link) => $(".result-view", (await ask(link.href, PART)).page);

// Spreadsheets run texts that begin like a formula, so that these get an apostrophe in front.
const cellText = (cell) => {
  const text = cell.innerText.replace(/\s+/g, " ");
  return !cell.matches(".number") && /^[=+\-@]/.test(text) ? `'${text}` : text;
};

const VIEWS = {
  "a[data-view]": async (link) => {
    put(link.closest(".result-view"), await viewAt(link));
    say("Shown");
  },
  "a[data-more]": async (link) => {
    const line = link.closest(".more-line"), list = line.previousElementSibling;
    const fresh = await viewAt(link);
    const rows = (root) => (root.matches("[data-rows]") ? root : $("[data-rows]", root));
    rows(list).append(...rows(fresh).childNodes);
    const rest = [...fresh.children].find((one) => one.matches(".more-line"));
    line.replaceWith(document.adoptNode(rest));
  },
  "[data-copy-table]": async (button) => {
    const rows = $$("tr", button.closest(".result-view"));
    await copy(rows.map((row) => [...row.cells].map(cellText).join("\t")).join("\n"));
  },
  "[data-picture]": (from) => {
    const shown = $("img", from), figure = document.createElement("figure");
    figure.className = "picture";
    figure.innerHTML = '<h1 class="unseen" id="dialog-title"></h1><button type="button" class="button small" data-cancel>Close</button><img>';
    $("h1", figure).textContent = shown.alt;
    Object.assign($("img", figure), { src: shown.src, alt: shown.alt });
    $("#dialog").replaceChildren(figure);
    $("#dialog").showModal();
  },
};

document.addEventListener("click", async (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  for (const [selector, act] of Object.entries(VIEWS)) {
    const found = event.target.closest?.(selector);
    if (!found) continue;
    event.preventDefault();
    found.setAttribute("aria-busy", "true");
    try {
      await act(found);
    } catch {
      // Every link also works as a plain page.
      if (found.href) location.assign(found.href);
    } finally {
      found.removeAttribute("aria-busy");
    }
    return;
  }
});

// A picture that cannot be displayed becomes a link to its bytes.
document.addEventListener("error", ({ target }) => {
  const from = target.matches?.("img") && target.closest("[data-picture]");
  if (!from) return;
  from.removeAttribute("data-picture");
  from.className = "chip";
  from.replaceChildren("This is not a valid picture");
}, true);
