// Enhancements for results: switching views and loading more in place, copying tables, and large pictures.
"use strict";

// The last clicked link of each view. Responses to earlier ones are ignored.
const latestLinks = new Map();

// Passes the loaded view to apply(), with the element that shows the result now: it may have been replaced since.
async function loadView(link, apply) {
  const { id } = link.closest(".result-view");
  latestLinks.set(id, link);
  const response = await fetchPage(link.href, FRAGMENT_REQUEST).catch((error) => ({ error }));
  if (latestLinks.get(id) !== link) return;
  if (!response.ok) throw response.error ?? new RequestError(response.message);
  const oldView = document.getElementById(id), newView = $(".result-view", response.page);
  if (oldView) apply(oldView, newView);
}

// Spreadsheets evaluate text that starts like a formula: prefix it with an apostrophe.
const cellText = (cell) => {
  const text = cell.innerText.replace(/\s+/g, " ");
  return !cell.matches(".number") && /^[=+\-@]/.test(text) ? `'${text}` : text;
};

const RESULT_ACTIONS = {
  "a[data-view]": (link) => loadView(link, (oldView, newView) => {
    replaceElement(oldView, newView);
    announce("Shown");
  }),
  "a[data-more]": (link) => loadView(link, (_oldView, newView) => {
    const moreLine = link.closest(".more-line"), shownPart = moreLine.previousElementSibling;
    const findRows = (root) => (root.matches("[data-rows]") ? root : $("[data-rows]", root));
    findRows(shownPart).append(...findRows(newView).childNodes);
    const newMoreLine = [...newView.children].find((child) => child.matches(".more-line"));
    moreLine.replaceWith(document.adoptNode(newMoreLine));
  }),
  "[data-copy-table]": async (button) => {
    const rows = $$("tr", button.closest(".result-view"));
    await copyText(rows.map((row) => [...row.cells].map(cellText).join("\t")).join("\n"));
  },
  "[data-picture]": (trigger) => {
    const image = $("img", trigger), figure = document.createElement("figure");
    figure.className = "picture";
    figure.innerHTML = '<h1 class="visually-hidden" id="dialog-title"></h1><button type="button" class="button small" data-cancel>Close</button><img>';
    $("h1", figure).textContent = image.alt;
    Object.assign($("img", figure), { src: image.src, alt: image.alt });
    $("#dialog").replaceChildren(figure);
    $("#dialog").showModal();
  },
};

runOnClick(RESULT_ACTIONS);

// A picture that cannot be displayed becomes a link to its bytes.
document.addEventListener("error", ({ target }) => {
  const trigger = target.matches?.("img") && target.closest("[data-picture]");
  if (!trigger) return;
  trigger.removeAttribute("data-picture");
  trigger.className = "chip";
  trigger.replaceChildren("This is not a valid picture");
}, true);
