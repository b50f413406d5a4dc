"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const tip = document.getElementById("tip");
  let here = null;
  document.documentElement.classList.add("scripted");

  function at(pointer) {
    return pointer.split("/").slice(1).reduce((part, name) => (part === null || part === undefined ? null : part[name]), figures);
  }

  function hide() {
    tip.hidden = true;
    if (here) here.classList.remove("here");
    here = null;
  }

  function show(mark, x, y) {
    if (here !== mark) {
      hide();
      here = mark;
      mark.classList.add("here");
      tip.textContent = mark.dataset.tip;
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 14 + box.width > innerWidth ? x - box.width - 14 : x + 14;
    const top = y + 14 + box.height > innerHeight ? y - box.height - 14 : y + 14;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, top) + "px";
  }

  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest ? event.target.closest("[data-tip]") : null;
    if (mark) show(mark, event.clientX, event.clientY);
    else if (here && !here.closest("svg").matches(":focus")) hide();
  });
  document.addEventListener("scroll", hide, { passive: true });

  function walk(plot, event) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key === "Escape") hide();
    if (!(event.key in steps)) return;
    event.preventDefault();
    const marks = [...plot.querySelectorAll("[data-tip]")];
    const place = marks.indexOf(here);
    const next = marks[place < 0 ? 0 : (place + steps[event.key] + marks.length) % marks.length];
    if (!next) return;
    const box = next.getBoundingClientRect();
    show(next, box.left + box.width / 2, box.top + box.height / 2);
  }

  for (const plot of document.querySelectorAll("svg.plot")) {
    plot.addEventListener("keydown", (event) => walk(plot, event));
    plot.addEventListener("blur", hide);
  }

  function compare(one, other, numeric) {
    return numeric ? Number(one) - Number(other) : String(one).localeCompare(String(other), "en", { numeric: true });
  }

  function sort(title) {
    const table = title.closest("table"), body = table.tBodies[0];
    const column = title.cellIndex, numeric = !title.classList.contains("left");
    const before = title.getAttribute("aria-sort");
    const way = before === "none" ? (numeric ? "descending" : "ascending") : before === "ascending" ? "descending" : "ascending";
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    title.setAttribute("aria-sort", way);
    const rows = [...body.rows].map((row) => [at(row.cells[column].dataset.figure), row]);
    const known = rows.filter(([value]) => value !== null && value !== ""), unknown = rows.filter(([value]) => value === null || value === "");
    known.sort(([one], [other]) => (way === "ascending" ? 1 : -1) * compare(one, other, numeric));
    body.append(...[...known, ...unknown].map(([, row]) => row));
  }

  for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sort(button.closest("th")));

  function filter(field) {
    const rows = [...document.getElementById(field.dataset.table).tBodies[0].rows];
    const wanted = field.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    const count = rows.filter((row) => !row.hidden).length;
    field.parentElement.querySelector(".found").textContent = wanted ? count + " of " + rows.length + " rows" : "";
  }

  for (const field of document.querySelectorAll("input[data-table]")) field.addEventListener("input", () => filter(field));

  const theme = document.getElementById("theme");
  function remembered(value) {
    try {
      if (value === undefined) return localStorage.getItem("tidegate-theme") || "";
      localStorage.setItem("tidegate-theme", value);
    } catch (refused) {
      return "";
    }
    return value;
  }
  function paint(value) {
    if (value) document.documentElement.dataset.theme = value;
    else delete document.documentElement.dataset.theme;
    theme.value = value;
  }
  theme.addEventListener("change", () => paint(remembered(theme.value) || theme.value));
  paint(remembered());
})();
