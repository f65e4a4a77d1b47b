// Editing a message: the message form is filled with its text, and the unsent text comes back afterwards.
"use strict";

let unsent = null;

function isEditing() {
  return Boolean($("#editing a[data-edit]"));
}

document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("a[data-edit]"), box = $("#text");
  if (!link || !box || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  link.setAttribute("aria-busy", "true");
  // Nothing that is typed meanwhile would be overwritten.
  box.readOnly = true;
  try {
    const { page } = await ask(link.href.split("#")[0], PART);
    if (!isEditing()) unsent = box.value;
    const isEdit = Boolean($("#editing a", page));
    put($("#editing"), page.getElementById("editing"));
    box.value = isEdit ? page.getElementById("text").value : unsent;
    box.focus();
    $("#told").replaceChildren();
  } catch (error) {
    fail(error);
  } finally {
    box.readOnly = false;
    link.removeAttribute("aria-busy");
  }
});

// The form was sent, and is a form for new messages again.
new MutationObserver(() => {
  if (isEditing() || !unsent) return;
  if (!$("#text").value) $("#text").value = unsent;
  unsent = null;
}).observe($("#composer") || document.body, { childList: true });
