// Keeps a page up: puts in what is new, in its order, and touches nothing else (see parts.py).
function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content.firstElementChild;
}

// Who was on the second link of a row is on the second link of its successor; what was open stays so.
function replaced(old, fresh) {
  const reach = "a[href], button, summary, [tabindex]";
  const at = [...old.querySelectorAll(reach)].indexOf(document.activeElement);
  const open = new Set([...old.querySelectorAll("details[open]")].map((one) => one.textContent));
  fresh.querySelectorAll("details").forEach((one) => { one.open = open.has(one.textContent); });
  old.replaceWith(fresh);
  if (at >= 0) fresh.querySelectorAll(reach)[at]?.focus({ preventScroll: true });
}

function arranged(container, placed) {
  const wanted = new Set(placed.map(([name]) => name));
  const known = new Map();
  for (const child of [...container.children]) {
    if (wanted.has(child.dataset.part)) known.set(child.dataset.part, child);
    else child.remove();
  }
  let place = container.firstElementChild;
  for (const [name, html] of placed) {
    let element = known.get(name);
    if (html !== null) {
      const fresh = parsed(html);
      if (element) {
        replaced(element, fresh);
        if (place === element) place = fresh;
      }
      element = fresh;
    }
    if (!element) continue;
    if (element === place) place = place.nextElementSibling;
    else container.insertBefore(element, place);
  }
}

export default {
  template: "<div></div>",
  props: { content: String },
  mounted() {
    this.$el.innerHTML = this.content;
  },
  methods: {
    change(changes) {
      for (const [name, placed] of Object.entries(changes)) {
        if (name !== "") {
          const part = [...this.$el.children].find((one) => one.dataset.part === name);
          const rows = part?.querySelector("[data-rows]");
          if (rows) arranged(rows, placed);
        }
      }
      if (changes[""]) arranged(this.$el, changes[""]);
    },
  },
};
