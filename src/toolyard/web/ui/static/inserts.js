// Prompts ("/" at the start of a message) and resources ("@") of servers, and suggestions for their arguments.
"use strict";

{
  const messageBox = $("#text"), optionList = $("#insert-box");
  let lastSearchRequestId = 0;

  // Returns the kind, query and start of the reference that is being typed before the cursor, or null.
  function parseTypedText() {
    const textBefore = messageBox.value.slice(0, messageBox.selectionStart);
    const match = /^\/([^\s/]{0,60})$/.exec(textBefore) || /(?:^|\s)@([^\s@]{0,60})$/.exec(textBefore);
    if (!match) return null;
    return { kind: textBefore.startsWith("/") ? "prompt" : "resource", query: match[1], start: textBefore.length - match[1].length - 1 };
  }

  function hideOptions() {
    lastSearchRequestId += 1;
    optionList.hidden = true;
    messageBox.removeAttribute("aria-activedescendant");
  }

  const getOptions = () => $$("[role=option]", optionList);

  function selectOption(option) {
    getOptions().forEach((other) => other.setAttribute("aria-selected", String(other === option)));
    messageBox.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  }

  const chatId = () => messageBox.form.action.split("/ui/chat/")[1] || "";

  const searchOptions = debounce(200, async () => {
    const typed = parseTypedText(), requestId = (lastSearchRequestId += 1);
    if (!typed) return hideOptions();
    const query = new URLSearchParams({ kind: typed.kind, q: typed.query, chat: chatId() });
    const { page, ok } = await fetchPage(`/ui/chat/insert?${query}`, FRAGMENT_REQUEST).catch(() => ({}));
    const newOptions = ok && $$("[role=option]", page).slice(0, 8);
    // Something else may have been typed since.
    if (requestId !== lastSearchRequestId || !parseTypedText()) return;
    if (!newOptions?.length) return hideOptions();
    newOptions.forEach((option, index) => Object.assign(option, { id: `insert-${index}`, tabIndex: -1 }));
    optionList.replaceChildren(...newOptions.map((option) => document.adoptNode(option)));
    optionList.hidden = false;
    selectOption(getOptions()[0]);
  });

  function chooseOption(option) {
    const { start } = parseTypedText() || { start: messageBox.selectionStart };
    messageBox.setRangeText("", start, messageBox.selectionStart, "end");
    // The list is hidden first: its own handler then lets this click pass.
    hideOptions();
    option.click();
  }

  if (messageBox && optionList) {
    messageBox.setAttribute("aria-controls", optionList.id);
    messageBox.addEventListener("input", () => (parseTypedText() ? searchOptions() : hideOptions()));
    messageBox.addEventListener("blur", () => setTimeout(() => optionList.matches(":hover") || hideOptions(), 200));
    messageBox.addEventListener("keydown", (event) => {
      const { key } = event, options = getOptions(), index = options.findIndex((option) => option.getAttribute("aria-selected") === "true");
      if (optionList.hidden || event.isComposing || !options.length) return;
      if (key === "ArrowDown" || key === "ArrowUp") selectOption(options.at((index + (key === "ArrowDown" ? 1 : -1)) % options.length));
      else if (key === "Enter" || key === "Tab") chooseOption(options[Math.max(index, 0)]);
      else if (key === "Escape") hideOptions();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    // In the capture phase, before chat.js follows the link.
    optionList.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (!option || optionList.hidden) return;
      event.preventDefault();
      event.stopPropagation();
      chooseOption(option);
    }, true);
  }

  // The dialog: search, suggestions and insertion.

  const searchDialog = debounce(200, async (input) => {
    const query = String(new URLSearchParams(new FormData(input.form)));
    const newList = (await fetchPage(`/ui/chat/insert?${query}`, FRAGMENT_REQUEST)).page.getElementById("insert-list");
    if (input.isConnected && query === String(new URLSearchParams(new FormData(input.form)))) replaceElement($("#insert-list", input.closest("#panel")), newList);
  });

  let suggestionRequest = null;
  const suggestValues = debounce(250, async (input) => {
    suggestionRequest?.abort();
    suggestionRequest = new AbortController();
    const query = new URLSearchParams(new FormData(input.form));
    ["csrf", "chat", "kind", "server", "name"].forEach((name) => query.delete(name));
    query.set("argument", input.dataset.argument);
    const options = { ...FRAGMENT_REQUEST, signal: suggestionRequest.signal };
    const response = await fetchPage(`${input.form.dataset.complete}&${query}`, options).catch(() => null);
    const suggestions = response?.ok && response.page.getElementById("suggestions");
    if (!suggestions || !input.isConnected) return;
    $("#suggestions").replaceWith(document.adoptNode(suggestions));
    input.setAttribute("list", "suggestions");
  });

  document.addEventListener("input", ({ target }) => {
    if (target.matches("[data-insert-search]")) searchDialog(target);
    else if (target.matches("form[data-insert] [data-argument]")) suggestValues(target);
  });
  document.addEventListener("focusin", ({ target }) => target.matches("form[data-insert] [data-argument]") && suggestValues(target));

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
      const response = await postForm(form.action, new URLSearchParams(new FormData(form)), FRAGMENT_REQUEST);
      const result = await readPage(response), { page } = result, chips = $$("li.chip", page), newPanel = page.getElementById("panel");
      if (response.ok && chips.length) {
        $("#attachments").append(...chips.map((chip) => document.adoptNode(chip)));
        $("#dialog").close();
        messageBox.focus();
        announce("Inserted");
      } else if (newPanel) {
        replaceElement($("#panel"), newPanel);
        $("#dialog h1").id = "dialog-title";
      } else {
        $("#dialog").close();
        showAlert(createResponseAlert(result));
      }
    } catch (error) {
      $("#dialog").close();
      showAlert(createErrorAlert(error));
    } finally {
      button.removeAttribute("aria-busy");
    }
  }, true);
}
