// Prompts ("/" at the start of a message) and resources ("@") of servers, and suggestions for their arguments.
"use strict";

{
  const box = $("#text"), list = $("#insert-box");
  let round = 0;

  // What is being typed: the kind, the words to find, and where they begin.
  function typed() {
    const before = box.value.slice(0, box.selectionStart);
    const found = /^\/([^\s/]{0,60})$/.exec(before) || /(?:^|\s)@([^\s@]{0,60})$/.exec(before);
    if (!found) return null;
    return { kind: before.startsWith("/") ? "prompt" : "resource", words: found[1], from: before.length - found[1].length - 1 };
  }

  function hide() {
    round += 1;
    list.hidden = true;
    box.removeAttribute("aria-activedescendant");
  }

  const options = () => $$("[role=option]", list);

  function select(option) {
    options().forEach((one) => one.setAttribute("aria-selected", String(one === option)));
    box.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  }

  const chat = () => box.form.action.split("/ui/chat/")[1] || "";

  const search = later(200, async () => {
    const now = typed(), mine = (round += 1);
    if (!now) return hide();
    const query = new URLSearchParams({ kind: now.kind, q: now.words, chat: chat() });
    const { page, ok } = await ask(`/ui/chat/insert?${query}`, PART).catch(() => ({}));
    const fresh = ok && $$("[role=option]", page).slice(0, 8);
    // Something else may have been typed since.
    if (mine !== round || !typed()) return;
    if (!fresh?.length) return hide();
    fresh.forEach((one, at) => Object.assign(one, { id: `insert-${at}`, tabIndex: -1 }));
    list.replaceChildren(...fresh.map((one) => document.adoptNode(one)));
    list.hidden = false;
    select(options()[0]);
  });

  function choose(option) {
    const { from } = typed() || { from: box.selectionStart };
    box.setRangeText("", from, box.selectionStart, "end");
    hide();
    option.click();
  }

  if (box && list) {
    box.setAttribute("aria-controls", list.id);
    box.addEventListener("input", () => (typed() ? search() : hide()));
    box.addEventListener("blur", () => setTimeout(() => list.matches(":hover") || hide(), 200));
    box.addEventListener("keydown", (event) => {
      const { key } = event, all = options(), at = all.findIndex((one) => one.getAttribute("aria-selected") === "true");
      if (list.hidden || event.isComposing || !all.length) return;
      if (key === "ArrowDown" || key === "ArrowUp") select(all.at((at + (key === "ArrowDown" ? 1 : -1)) % all.length));
      else if (key === "Enter" || key === "Tab") choose(all[Math.max(at, 0)]);
      else if (key === "Escape") hide();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    // Before the link is followed by the script of the chat.
    list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (!option || list.hidden) return;
      event.preventDefault();
      event.stopPropagation();
      choose(option);
      // The link is detached from the list's handler now.
    }, true);
  }

  // The dialog: search, suggestions and insertion.

  const searchDialog = later(200, async (input) => {
    const query = String(new URLSearchParams(new FormData(input.form)));
    const fresh = (await ask(`/ui/chat/insert?${query}`, PART)).page.getElementById("insert-list");
    if (input.isConnected && query === String(new URLSearchParams(new FormData(input.form)))) put($("#insert-list", input.closest("#panel")), fresh);
  });

  let asking = null;
  const suggest = later(250, async (input) => {
    asking?.abort();
    asking = new AbortController();
    const query = new URLSearchParams(new FormData(input.form));
    ["csrf", "chat", "kind", "server", "name"].forEach((name) => query.delete(name));
    query.set("argument", input.dataset.argument);
    const options = { ...PART, signal: asking.signal };
    const found = await ask(`${input.form.dataset.complete}&${query}`, options).catch(() => null);
    const fresh = found?.ok && found.page.getElementById("suggestions");
    if (!fresh || !input.isConnected) return;
    $("#suggestions").replaceWith(document.adoptNode(fresh));
    input.setAttribute("list", "suggestions");
  });

  document.addEventListener("input", ({ target }) => {
    if (target.matches("[data-insert-search]")) searchDialog(target);
    else if (target.matches("form[data-insert] [data-argument]")) suggest(target);
  });
  document.addEventListener("focusin", ({ target }) => target.matches("form[data-insert] [data-argument]") && suggest(target));

  addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.matches("[role=search]") && form.closest("#dialog")) return event.preventDefault();
    if (!form.matches("#dialog form[data-insert]")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const button = $(".primary", form);
    if (button.getAttribute("aria-busy") === "true") return;
    button.setAttribute("aria-busy", "true");
    try {
      const response = await post(form.action, new URLSearchParams(new FormData(form)), PART);
      const { page, said } = await read(response), made = $$("li.chip", page), again = page.getElementById("panel");
      if (response.ok && made.length) {
        $("#attachments").append(...made.map((chip) => document.adoptNode(chip)));
        $("#dialog").close();
        box.focus();
        say("Inserted");
      } else if (again) {
        put($("#panel"), again);
        $("#dialog h1").id = "dialog-title";
      } else {
        $("#dialog").close();
        tell(page.querySelector(".alert, .empty") || trouble(new Refused(said)));
      }
    } catch (error) {
      $("#dialog").close();
      tell(trouble(error));
    } finally {
      button.removeAttribute("aria-busy");
    }
  }, true);
}
