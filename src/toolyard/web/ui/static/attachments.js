// Attachments of a message: chosen, pasted or dropped, and uploaded at once, so that the message is sent quickly.
"use strict";

{
  const form = $("#composer"), list = $("#attachments"), input = $("#attach");
  const pending = new Set();
  let failed = false;

  const plain = (text) => (text ? text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".") : "");

  function refuse(text) {
    failed = true;
    tell(trouble(new Refused(text)));
  }

  function attach(file) {
    const count = Number(list.dataset.count), bytes = Number(list.dataset.bytes), name = file.name || "picture";
    if (list.children.length >= count) return refuse(`A message may have at most ${count} attachments. Send several messages.`);
    if (file.size > bytes) return refuse(`“${name}” is too large: an attachment may have at most ${(bytes / 1e6).toLocaleString("en")} MB.`);
    const item = $("#unsent").content.firstElementChild.cloneNode(true);
    $("bdi", item).textContent = name;
    $("button", item).setAttribute("aria-label", `Remove ${name}`);
    item.setAttribute("aria-busy", "true");
    list.append(item);
    const upload = send(file, name, item).finally(() => pending.delete(upload));
    pending.add(upload);
  }

  async function send(file, name, item) {
    try {
      const headers = { "Content-Type": "application/octet-stream" };
      const response = await fetch(`/api/v1/attachments?name=${encodeURIComponent(name.slice(0, 300))}`, { method: "POST", body: file, headers });
      if (response.status === 401) throw new SignedOut();
      const told = await response.json();
      if (!response.ok) throw new Refused(`${plain(told.detail)} ${plain(told.hint)}`);
      $("input", item).value = told.id;
      $("bdi", item).textContent = told.name;
      if (told.mime.startsWith("image/")) show(item, told);
      item.removeAttribute("aria-busy");
      say(`${told.name} attached`);
      // Removed while it was uploaded.
      if (!item.isConnected) forget(told.id);
    } catch (error) {
      failed = true;
      item.remove();
      tell(trouble(error));
    }
    warn();
  }

  function show(item, told) {
    item.dataset.seen = "";
    $(".icon", item).replaceWith(Object.assign(new Image(), { src: told.url, alt: "" }));
  }

  const forget = (id) => fetch(`/api/v1/attachments/${id}`, { method: "DELETE" }).catch(() => {});

  // Tells about a model without sight before the message is sent. The server refuses the message as well.
  function warn() {
    const isBlind = $("select[name=model]")?.selectedOptions[0]?.dataset.blind !== undefined;
    $("#blind").hidden = !isBlind || !$("[data-seen]", list);
  }

  if (form && list) {
    // Without the name, the form does not send the files again.
    input.removeAttribute("name");
    input.addEventListener("change", () => {
      [...input.files].forEach(attach);
      input.value = "";
      $("#text").focus();
    });
    list.addEventListener("click", ({ target }) => {
      const item = target.closest("[data-detach]")?.closest("li");
      if (!item) return;
      const { value } = $("input", item);
      item.remove();
      if (value) forget(value);
      warn();
      $("#text").focus();
    });
    form.addEventListener("sent", () => {
      list.replaceChildren();
      warn();
    });
    document.addEventListener("change", ({ target }) => target.matches("select[name=model]") && warn());
    $("#text").addEventListener("paste", (event) => {
      const files = [...event.clipboardData.files];
      // Office programs add a picture of copied text.
      if (!files.length || event.clipboardData.types.includes("text/plain")) return;
      event.preventDefault();
      files.forEach(attach);
    });
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    const mark = (on) => form.classList.toggle("dropping", on);
    document.addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      mark(true);
    });
    document.addEventListener("dragleave", (event) => event.relatedTarget || mark(false));
    document.addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      mark(false);
      [...event.dataTransfer.files].forEach(attach);
    });
    addEventListener("submit", async (event) => {
      if (event.target !== form || !pending.size) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      failed = false;
      await Promise.allSettled(pending);
      if (!failed) form.requestSubmit();
    }, true);
  }
}
