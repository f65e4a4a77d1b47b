// The form of an agent shows the tools that the agent gets. An empty chat shows the prompts of the chosen agent.
"use strict";

let previews = 0;

const previewSoon = later(300, async (form) => {
  const data = new URLSearchParams(new FormData(form)), mine = ++previews;
  data.delete("prompt");
  $("#preview")?.setAttribute("aria-busy", "true");
  try {
    const { page } = await read(await post("/ui/agents/_preview", data, PART));
    const fresh = page.getElementById("preview"), old = $("#preview");
    if (mine !== previews || !form.isConnected || !fresh || !old) return;
    // Open groups stay open.
    $$("details", old).forEach((one, at) => one.open && $$("details", fresh)[at]?.setAttribute("open", ""));
    put(old, fresh);
    say(`Preview: ${$(".cost", $("#preview"))?.textContent ?? ""}`);
  } catch (error) {
    fail(error);
  } finally {
    $("#preview")?.removeAttribute("aria-busy");
  }
});

const isChosen = (target) => target.matches("[data-preview] :is(input, select, textarea):not([data-filter])");

document.addEventListener("input", ({ target }) => isChosen(target) && previewSoon(target.form));
document.addEventListener("click", ({ target }) => {
  const form = target.closest?.("[data-preview] [data-all]")?.form;
  if (form) previewSoon(form);
});

// Enter in the filter of a list must not save the form.
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches("#agent-form [data-filter]")) event.preventDefault();
});

document.addEventListener("change", async ({ target }) => {
  if (target.matches("input[data-fill]") && target.files.length) {
    $(target.dataset.fill).value = await target.files[0].slice(0, 2_000_000).text();
  }
  const greeting = $("#greeting");
  if (!greeting || !target.matches("select[name=agent]")) return;
  const { page } = await ask(`/ui/chat?agent=${encodeURIComponent(target.value)}`).catch(() => ({}));
  const fresh = page?.getElementById("greeting");
  if (fresh) put($("#greeting"), fresh);
});
