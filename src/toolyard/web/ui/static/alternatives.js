// Editing a message: the message form is filled with its text, and the unsent text is restored afterwards.
"use strict";

let unsentText = null;

function isEditing() {
  return Boolean($("#editing a[data-edit]"));
}

document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("a[data-edit]"), messageBox = $("#text");
  if (!link || !messageBox || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  link.setAttribute("aria-busy", "true");
  // The response would overwrite text that is typed meanwhile.
  messageBox.readOnly = true;
  try {
    const response = await fetchPage(link.href.split("#")[0], FRAGMENT_REQUEST), { page } = response;
    if (!response.ok) return showAlert(createResponseAlert(response));
    if (!isEditing()) unsentText = messageBox.value;
    const isEdit = Boolean($("#editing a", page));
    replaceElement($("#editing"), page.getElementById("editing"));
    messageBox.value = isEdit ? page.getElementById("text").value : unsentText;
    messageBox.focus();
    $("#alerts").replaceChildren();
  } catch (error) {
    showError(error);
  } finally {
    messageBox.readOnly = false;
    link.removeAttribute("aria-busy");
  }
});

// Restores the unsent text when the form is for new messages again.
new MutationObserver(() => {
  if (isEditing() || !unsentText) return;
  if (!$("#text").value) $("#text").value = unsentText;
  unsentText = null;
}).observe($("#composer") || document.body, { childList: true });
