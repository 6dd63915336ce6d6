// The box "Draft from these": reads files that were chosen, dropped or pasted, and hands them to the server.
window.specuiReferences = (() => {
  const NAME_LENGTH = 40;

  const base64 = (file) => new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => resolve(null);  // a folder, or a file that is gone
    reader.readAsDataURL(file);
  });

  // A file that is too large is named, not sent; the server counts for itself.
  async function read(files, limit) {
    let room = limit;
    const read = [];
    for (const file of files) {
      const fits = file.size <= room;
      if (fits) room -= file.size;
      read.push({ name: file.name, size: fits ? file.size : limit + 1, data: fits ? await base64(file) : null });
    }
    return read;
  }

  // Text without a file is named by its beginning.
  function filesOf(transfer) {
    if (transfer.files.length) return [...transfer.files];
    const text = transfer.getData("text/plain");
    return text.trim() ? [new File([text], text.trim().split("\n")[0].slice(0, NAME_LENGTH))] : [];
  }

  function bind(element, send, watchValue) {
    let held = false;  // whether the focus was in the box, which every answer of the server draws anew
    const act = (data) => { held = element.contains(document.activeElement); send(data); };
    watchValue(() => { if (held && document.activeElement === document.body) element.querySelector("input").focus(); });
    const limit = () => Number(element.querySelector("[data-limit]").dataset.limit);
    const box = () => element.querySelector(".sp-refs-drop");
    const over = (yes) => box().classList.toggle("sp-over", yes);
    const take = async (files) => { if (files.length) act({ remove: "", files: await read(files, limit()) }); };

    element.addEventListener("change", (event) => {
      take([...event.target.files]);
      event.target.value = "";  // so that the same file can be chosen again
    });
    element.addEventListener("click", (event) => {
      const button = event.target.closest("[data-name]");
      if (button) act({ remove: button.dataset.name, files: [] });
    });
    element.addEventListener("paste", (event) => { event.preventDefault(); take(filesOf(event.clipboardData)); });
    element.addEventListener("dragover", (event) => { event.preventDefault(); over(true); });
    element.addEventListener("dragleave", () => over(false));
    element.addEventListener("drop", (event) => {
      event.preventDefault();
      event.stopPropagation();
      over(false);
      take(filesOf(event.dataTransfer));
    });
  }
  return { bind };
})();
