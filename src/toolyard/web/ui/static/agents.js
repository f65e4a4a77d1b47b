// The form of an agent shows the tools that the agent gets. An empty chat shows the prompts of the chosen agent.
"use strict";

let lastPreviewRequestId = 0;

const updatePreview = debounce(300, async (form) => {
  const data = new URLSearchParams(new FormData(form)), requestId = ++lastPreviewRequestId;
  data.delete("prompt");
  $("#preview")?.setAttribute("aria-busy", "true");
  try {
    const { page } = await readPage(await postForm("/ui/agents/_preview", data, FRAGMENT_REQUEST));
    const newPreview = page.getElementById("preview"), oldPreview = $("#preview");
    if (requestId !== lastPreviewRequestId || !form.isConnected || !newPreview || !oldPreview) return;
    // Open groups stay open.
    $$("details", oldPreview).forEach((details, index) => details.open && $$("details", newPreview)[index]?.setAttribute("open", ""));
    replaceElement(oldPreview, newPreview);
    announce(`Preview: ${$(".cost", $("#preview"))?.textContent ?? ""}`);
  } catch (error) {
    showError(error);
  } finally {
    $("#preview")?.removeAttribute("aria-busy");
  }
});

const isPreviewedField = (target) => target.matches("[data-preview] :is(input, select, textarea):not([data-filter])");

document.addEventListener("input", ({ target }) => isPreviewedField(target) && updatePreview(target.form));
document.addEventListener("click", ({ target }) => {
  const form = target.closest?.("[data-preview] [data-check-all]")?.form;
  if (form) updatePreview(form);
});

// Enter in the filter of a list must not save the form.
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches("#agent-form [data-filter]")) event.preventDefault();
});

document.addEventListener("change", async ({ target }) => {
  if (target.matches("input[data-load-file-into]") && target.files.length) {
    $(target.dataset.loadFileInto).value = await target.files[0].slice(0, 2_000_000).text();
  }
  const greeting = $("#greeting");
  if (!greeting || !target.matches("select[name=agent]")) return;
  const { value } = target, { page } = await fetchPage(`/ui/chat?agent=${encodeURIComponent(value)}`).catch(() => ({}));
  const newGreeting = page?.getElementById("greeting");
  // Another agent may have been chosen since.
  if (newGreeting && target.value === value) replaceElement($("#greeting"), newGreeting);
});
