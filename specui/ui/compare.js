// The Compare tab: keeps the form in the browser, sends it, follows the lanes' texts, saves and opens files.
window.specuiRace = (() => {
  const FORM = "specui.race", OWN = "own", CHAT = "chat", CLOSE_TO_END = 40, MAX_BYTES = 16 << 20;

  let reveal = false;  // whether what comes next is to be brought into view

  function attempt(action, otherwise) {
    try { return action(); } catch (error) { console.warn("specui:", error); return otherwise; }
  }

  // --- the form
  const fields = (form) => [...form.elements].filter((field) => field.name);
  const lanesOf = (form) => [...form.querySelectorAll(".sp-race-lane")].map((lane) => ({
    mode: lane.querySelector("select").value, length: lane.querySelector("input").value,
  }));

  function values(form, own) {
    const plain = Object.fromEntries(["source", "repeats", "max_tokens", "temperature", "seed"].map((name) => [name, form.elements[name].value]));
    return { ...plain, text: own, twin: form.elements.twin.checked, lanes: lanesOf(form) };
  }
  function fill(form, kept) {
    for (const name of ["source", "repeats", "max_tokens", "temperature", "seed"]) {
      if (typeof kept[name] === "string") form.elements[name].value = kept[name];
    }
    form.elements.twin.checked = Boolean(kept.twin);
    if (!form.elements.source.value) form.elements.source.value = OWN;
    [...form.querySelectorAll(".sp-race-lane")].forEach((lane, place) => {
      const set = (kept.lanes || [])[place];
      if (!set) return;
      lane.querySelector("select").value = set.mode;
      lane.querySelector("input").value = set.length;
    });
  }
  function conversation() {
    const chat = attempt(() => JSON.parse(window.specui.restore()[0] || "{}"), {});
    return (chat.turns || []).map((turn) => [`user: ${turn.question}`, turn.answer ? `assistant: ${turn.answer.text}` : ""]);
  }
  function conversationText() {
    const turns = conversation();
    if (!turns.length) return "There is no conversation in Chat yet.";
    return turns.map(([question, answer], place) => (place < turns.length - 1 && answer ? `${question}\n\n${answer}` : question)).join("\n\n");
  }

  function tend(form) {
    for (const lane of form.querySelectorAll(".sp-race-lane")) {
      const mode = lane.querySelector("select"), length = lane.querySelector("input");
      const plain = mode.value === "" || mode.value === "none";
      lane.dataset.mode = mode.value;
      length.disabled = plain;
      length.placeholder = plain ? "–" : mode.selectedOptions[0]?.dataset.length ?? "";
    }
    form.elements.seed.disabled = !(Number(form.elements.temperature.value) > 0);
  }

  function bind(element, begin, halt, server) {
    const form = element.querySelector("form"), text = form.elements.text;
    const kept = attempt(() => JSON.parse(localStorage.getItem(FORM) || "{}"), {}) || {};
    let own = typeof kept.text === "string" ? kept.text : "";
    const keep = () => attempt(() => localStorage.setItem(FORM, JSON.stringify(values(form, own))));

    async function source() {
      const chosen = form.elements.source.value;
      text.readOnly = chosen !== OWN;
      if (chosen === OWN) text.value = own;
      else if (chosen === CHAT) text.value = conversationText();
      else {
        const found = await server.preview(chosen);
        if (form.elements.source.value === chosen) text.value = found;
      }
      text.scrollTop = 0;
    }
    function start() {
      const sent = values(form, own), [chat, , prefs] = sent.source === CHAT ? window.specui.restore() : ["", "", ""];
      begin({ form: JSON.stringify({ ...sent, chat, prefs }) });
      if (!window.matchMedia("(min-width: 800px)").matches) setTimeout(show, 600);
    }
    attempt(() => fill(form, kept));
    tend(form);
    source();
    form.addEventListener("input", (event) => {
      if (event.target === text && !text.readOnly) own = text.value;
      if (event.target === form.elements.source) source();
      tend(form);
      keep();
    });
    form.addEventListener("submit", (event) => { event.preventDefault(); start(); });
    form.querySelector(".sp-race-stop").addEventListener("click", halt);
    document.addEventListener("click", (event) => {
      if (event.target.closest("#sp-tabs [role=tab]") && form.elements.source.value === CHAT) source();
    });
  }

  // --- the lanes' texts: the end stays in view unless one scrolled up
  function follow(element) {
    const scroller = element.closest(".sp-lane-text") ?? element;
    let atEnd = true;
    scroller.addEventListener("scroll", () => {
      atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < CLOSE_TO_END;
    }, { passive: true });
    new MutationObserver(() => { if (atEnd) scroller.scrollTop = scroller.scrollHeight; })
      .observe(scroller, { childList: true, subtree: true, characterData: true });
  }

  // --- files
  function show() {
    setTimeout(() => document.querySelector("#sp-race-bar").scrollIntoView({ block: "start" }), 100);
  }
  function bindBoard(element, save, watch) {
    watch("value", () => {
      if (reveal) show();
      reveal = false;
    });
    element.addEventListener("click", (event) => {
      const button = event.target.closest("[data-save]");
      if (button) save({ kind: button.dataset.save });
    });
  }
  function download(json) {
    if (!json) return;
    const file = JSON.parse(json), link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([file.text], { type: "text/plain" }));
    link.download = file.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  function bindHistory(element, act) {
    const chosen = () => [...element.querySelectorAll("input[type=checkbox]:checked")];
    const send = (name, keys, text = "") => {
      reveal = name !== "forget";
      act({ act: name, keys, text });
    };
    element.addEventListener("change", async (event) => {
      if (event.target.type === "file") {
        const file = event.target.files[0];
        if (file) send("bring", [], file.size > MAX_BYTES ? "" : await file.text());
        event.target.value = "";
        return;
      }
      const two = chosen();
      if (two.length > 2) two.find((box) => box !== event.target).checked = false;
      element.querySelector("[data-act=pair]").disabled = chosen().length !== 2;
    });
    element.addEventListener("keydown", (event) => {
      if (event.target.matches("label") && ["Enter", " "].includes(event.key)) { event.preventDefault(); event.target.click(); }
    });
    element.addEventListener("click", (event) => {
      const button = event.target.closest("[data-act]");
      if (!button) return;
      const keys = button.dataset.act === "pair" ? chosen().map((box) => box.closest("li").dataset.key) : [button.closest("li").dataset.key];
      send(button.dataset.act, keys);
    });
  }
  return { bind, bindBoard, bindHistory, follow, download };
})();
