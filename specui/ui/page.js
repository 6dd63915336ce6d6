// What the server cannot do: keep conversations in the browser, copy, edit in place, follow the end of the text.
// Conversations live under their own keys, so that two windows never overwrite each other's.
window.specui = (() => {
  const CHAT = "specui.chat.", PARTIAL = "specui.partial.", INDEX = "specui.chats", PREFS = "specui.prefs", NOW = "specui.now";
  const TITLE_LENGTH = 60, CLOSE_TO_END = 60;
  let current = "", restored = false;

  function attempt(action, otherwise) {
    try { return action(); } catch (error) { console.warn("specui:", error); return otherwise; }
  }
  const read = (store, key) => attempt(() => store().getItem(key), null) || "";
  const local = () => window.localStorage, tab = () => window.sessionStorage;
  const index = () => attempt(() => JSON.parse(read(local, INDEX) || "[]"), []);

  function write(key, value) {
    for (;;) {
      try { local().setItem(key, value); return; } catch (error) {
        const oldest = index().map((chat) => chat.id).filter((id) => !key.endsWith(id)).pop();
        if (!oldest) { console.warn("specui:", error); return; }
        forget(oldest);
      }
    }
  }
  function forget(id) {
    attempt(() => { local().removeItem(CHAT + id); local().removeItem(PARTIAL + id); });
    attempt(() => local().setItem(INDEX, JSON.stringify(index().filter((chat) => chat.id !== id))));
  }

  // --- what the server sends to be kept
  function keep(json) {
    current = json;
    if (!restored) { restored = true; focusBox(); }  // the server has answered: what is set now stays set
    const chat = attempt(() => JSON.parse(json || "{}"), {});
    attempt(() => tab().setItem(NOW, chat.id || ""));
    if (chat.id && chat.turns.length) {
      if (read(local, CHAT + chat.id) === json) return list();
      attempt(() => local().removeItem(PARTIAL + chat.id));
      const title = chat.turns[0].question.trim().split("\n")[0].slice(0, TITLE_LENGTH);
      write(CHAT + chat.id, json);
      const others = index().filter((other) => other.id !== chat.id);
      write(INDEX, JSON.stringify([{ id: chat.id, title }, ...others]));
    } else if (chat.id) {
      forget(chat.id);
    }
    list();
  }
  function keepPartial(json) {
    const part = attempt(() => JSON.parse(json || "{}"), {});
    if (part.id && read(local, CHAT + part.id)) write(PARTIAL + part.id, json);
  }
  function keepPrefs(json) {
    attempt(() => tab().setItem(PREFS, json));
    write(PREFS, json);
  }
  function restore() {
    const id = read(tab, NOW);
    return [id ? read(local, CHAT + id) : "", id ? read(local, PARTIAL + id) : "", read(tab, PREFS) || read(local, PREFS)];
  }

  // --- the list of chats
  function list() {
    const menu = document.querySelector("#sp-bar .sp-chats ul");
    if (!menu) return;
    const now = read(tab, NOW);
    menu.replaceChildren(...index().map((chat) => {
      const item = document.createElement("li"), open = document.createElement("button");
      open.type = "button";
      open.textContent = chat.title || "…";
      open.dataset.chat = chat.id;
      if (chat.id === now) open.setAttribute("aria-current", "true");
      item.append(open);
      return item;
    }));
    const name = document.querySelector("#sp-bar .sp-chats summary span");
    const here = index().find((chat) => chat.id === now);
    name.textContent = here ? here.title : "Chats";
  }
  function bindBar(element, open, clear) {
    element.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      if (button.dataset.act === "clear") { clear(); } else {
        attempt(() => tab().setItem(NOW, button.dataset.chat || ""));
        open();
      }
      element.querySelector("details").open = false;
      list();
      focusBox();
    });
    document.addEventListener("click", (event) => {
      if (!element.contains(event.target)) element.querySelector("details").open = false;
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") element.querySelector("details").open = false;
    });
    list();
  }

  // --- buttons in the conversation
  const turn = (at) => attempt(() => JSON.parse(current).turns[at], undefined);

  async function copy(text, button) {
    try { await navigator.clipboard.writeText(text); } catch (error) {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    const label = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1200);
  }
  function edit(at, section, act) {
    const area = document.createElement("textarea"), bar = document.createElement("div");
    const hidden = [...section.children];
    const close = () => { area.remove(); bar.remove(); hidden.forEach((child) => { child.hidden = false; }); };
    const send = () => act({ act: "edit", index: at, text: area.value });
    area.className = "sp-edit";
    area.setAttribute("aria-label", "Edit your message");
    area.value = turn(at)?.question ?? "";
    bar.className = "sp-actions";
    for (const [label, action] of [["Send", send], ["Cancel", close]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sp-quiet";
      button.textContent = label;
      button.addEventListener("click", (event) => { event.stopPropagation(); action(); });
      bar.append(button);
    }
    area.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); send(); }
      if (event.key === "Escape") close();
    });
    hidden.forEach((child) => { child.hidden = true; });
    section.append(area, bar);
    area.style.height = Math.min(area.scrollHeight + 2, 320) + "px";
    area.focus();
  }
  function bindThread(element, act) {
    element.addEventListener("click", (event) => {
      const button = event.target.closest("[data-act]");
      if (!button) return;
      const name = button.dataset.act, at = Number(button.dataset.index);
      if (name === "copy-code") copy(button.closest(".sp-code").querySelector("code").textContent, button);
      else if (name === "copy-answer") copy(turn(at)?.answer?.text ?? "", button);
      else if (name === "copy-question") copy(turn(at)?.question ?? "", button);
      else if (name === "edit") edit(at, button.closest("section"), act);
      else act({ act: name, index: at, text: "" });
      if (["retry", "undo", "example"].includes(name)) focusBox();
    });
  }

  // On a phone the chart and the settings are behind one button.
  function unfold(button) {
    const open = document.querySelector("#sp-side").classList.toggle("sp-open");
    button.setAttribute("aria-expanded", String(open));
    button.textContent = open ? "Fold" : "Chart and settings";
  }

  function openModels(button) {
    const tabs = [...document.querySelectorAll("#sp-tabs [role=tab]")];
    if (button.closest("button")) tabs.find((tab) => tab.textContent.trim() === "Models")?.click();
  }

  // What takes the server a while is said at once.
  function looking(words) {
    const place = document.querySelector("#sp-found .prose, #sp-found .sp-found, #sp-found > *") ?? document.querySelector("#sp-found");
    if (!place) return;
    const note = document.createElement("p");
    note.className = "sp-status";
    note.setAttribute("role", "status");
    note.textContent = words;
    place.prepend(note);
  }

  // One name makes the switch one group: arrow keys move inside it. A pair without a working draft model says why there.
  function tendSwitch() {
    document.querySelectorAll("#sp-switch input").forEach((input) => {
      if (input.name !== "sp-switch") input.name = "sp-switch";
    });
    const option = document.querySelector("#sp-switch input[value='draft-model']")?.closest("label");
    const reason = document.querySelector("#sp-badge .sp-badge")?.dataset.draftOff;
    if (option && option.title !== (reason ?? "")) option.title = reason ?? "";
  }

  // --- the input box and the end of the text
  const box = () => document.querySelector("#sp-box textarea");
  const wide = () => window.matchMedia("(min-width: 800px)").matches;
  function focusBox() { if (wide()) setTimeout(() => box()?.focus(), 0); }

  function follow() {
    const scroller = document.querySelector("#sp-scroll");
    if (!scroller || scroller.dataset.followed) return Boolean(scroller);
    scroller.dataset.followed = "yes";
    let atEnd = true, turns = 0;
    scroller.addEventListener("scroll", () => {
      atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < CLOSE_TO_END;
    }, { passive: true });
    new MutationObserver(() => {
      const now = scroller.querySelectorAll(".sp-user").length;
      if (now > turns) atEnd = true;
      turns = now;
      if (atEnd) scroller.scrollTop = scroller.scrollHeight;
    }).observe(scroller, { childList: true, subtree: true, characterData: true });
    return true;
  }
  function start() {
    document.addEventListener("keydown", (event) => {
      if (event.target !== box()) return;
      if (event.key === "Enter" && event.isComposing) event.stopImmediatePropagation();
      if (event.key === "Escape" && document.querySelector("[data-running]")) document.querySelector("#sp-stop")?.click();
    }, true);
    document.addEventListener("click", (event) => { if (event.target.closest("#sp-send, #sp-stop")) focusBox(); });
    const waiting = setInterval(() => {
      if (!follow() || !box()) return;
      clearInterval(waiting);
      const watcher = new MutationObserver(tendSwitch);  // gradio renders both anew whenever it likes
      for (const id of ["sp-top", "sp-side"]) {
        watcher.observe(document.getElementById(id), { childList: true, subtree: true, attributeFilter: ["name", "data-draft-off"] });
      }
      tendSwitch();
    }, 100);
  }
  start();
  return { keep, keepPartial, keepPrefs, restore, bindBar, bindThread, unfold, openModels, looking, list };
})();
