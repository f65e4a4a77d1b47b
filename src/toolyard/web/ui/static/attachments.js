// Attachments of a message: chosen, pasted or dropped, and uploaded at once, so that the message is sent quickly.
"use strict";

{
  const form = $("#composer"), list = $("#attachments"), input = $("#attach");
  const uploads = new Set();
  let uploadFailed = false;

  const formatSentence = (text) => (text ? text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".") : "");

  function showRefusal(text) {
    uploadFailed = true;
    showAlert(createErrorAlert(new RequestError(text)));
  }

  function attachFile(file) {
    const maxCount = Number(list.dataset.count), maxBytes = Number(list.dataset.bytes), name = file.name || "picture";
    if (list.children.length >= maxCount) return showRefusal(`A message may have at most ${maxCount} attachment${maxCount === 1 ? "" : "s"}. Send several messages.`);
    if (file.size > maxBytes) return showRefusal(`“${name}” is too large: an attachment may have at most ${(maxBytes / 1e6).toLocaleString("en")} MB.`);
    const item = $("#attachment-template").content.firstElementChild.cloneNode(true);
    $("bdi", item).textContent = name;
    $("button", item).setAttribute("aria-label", `Remove ${name}`);
    item.setAttribute("aria-busy", "true");
    list.append(item);
    const upload = uploadFile(file, name, item).finally(() => uploads.delete(upload));
    uploads.add(upload);
  }

  async function uploadFile(file, name, item) {
    try {
      const headers = { "Content-Type": "application/octet-stream" };
      const response = await fetch(`/api/v1/attachments?name=${encodeURIComponent(name.slice(0, 300))}`, { method: "POST", body: file, headers });
      if (response.status === 401) throw new SignedOutError();
      const attachment = await response.json();
      if (!response.ok) throw new RequestError(`${formatSentence(attachment.detail)} ${formatSentence(attachment.hint)}`);
      $("input", item).value = attachment.id;
      $("bdi", item).textContent = attachment.name;
      if (attachment.mime.startsWith("image/")) showThumbnail(item, attachment);
      item.removeAttribute("aria-busy");
      announce(`${attachment.name} attached`);
      // Removed while it was uploaded.
      if (!item.isConnected) deleteAttachment(attachment.id);
    } catch (error) {
      uploadFailed = true;
      item.remove();
      showAlert(createErrorAlert(error));
    }
    updatePictureWarning();
  }

  function showThumbnail(item, attachment) {
    item.dataset.isPicture = "";
    const image = Object.assign(new Image(), { src: attachment.url, alt: "" });
    // The server does not decode pictures.
    image.addEventListener("error", () => item.isConnected && showRefusal(`“${attachment.name}” can’t be shown: the picture may be damaged. Remove it, or attach another one.`));
    $(".icon", item).replaceWith(image);
  }

  const deleteAttachment = (id) => fetch(`/api/v1/attachments/${id}`, { method: "DELETE" }).catch(() => {});

  // Warns before the message is sent if the model cannot read pictures. The server refuses the message as well.
  function updatePictureWarning() {
    const cannotSee = $("select[name=model]")?.selectedOptions[0]?.dataset.noVision !== undefined;
    $("#picture-warning").hidden = !cannotSee || !$("[data-is-picture]", list);
  }

  if (form && list) {
    // Without the name, the form does not send the files again.
    input.removeAttribute("name");
    input.addEventListener("change", () => {
      [...input.files].forEach(attachFile);
      input.value = "";
      $("#text").focus();
    });
    list.addEventListener("click", ({ target }) => {
      const item = target.closest("[data-detach]")?.closest("li");
      if (!item) return;
      const { value } = $("input", item);
      item.remove();
      if (value) deleteAttachment(value);
      updatePictureWarning();
      $("#text").focus();
    });
    form.addEventListener("sent", ({ detail: sentIds }) => {
      [...list.children].forEach((item) => sentIds.includes($("input", item).value) && item.remove());
      updatePictureWarning();
    });
    document.addEventListener("change", ({ target }) => target.matches("select[name=model]") && updatePictureWarning());
    $("#text").addEventListener("paste", (event) => {
      const files = [...event.clipboardData.files];
      // Office programs add a picture of copied text.
      if (!files.length || event.clipboardData.types.includes("text/plain")) return;
      event.preventDefault();
      files.forEach(attachFile);
    });
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    const highlightDropTarget = (isHighlighted) => form.classList.toggle("dropping", isHighlighted);
    document.addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      highlightDropTarget(true);
    });
    document.addEventListener("dragleave", (event) => event.relatedTarget || highlightDropTarget(false));
    document.addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      highlightDropTarget(false);
      [...event.dataTransfer.files].forEach(attachFile);
    });
    addEventListener("submit", async (event) => {
      if (event.target !== form || !uploads.size) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      uploadFailed = false;
      await Promise.allSettled(uploads);
      if (!uploadFailed) form.requestSubmit();
    }, true);
  }
}
