// Keeps a page up: puts in what is new, in its order, and touches nothing else (see parts.py).
function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content.firstElementChild;
}

const keyOf = (one) => one.dataset.key ?? one.textContent;

// Who was on the second link of a row is on the second link of its successor; what was open stays so.
// A chart goes on in its place: a new one would blink, and lose the pointer.
function replaced(old, fresh) {
  const reach = "a[href], button, summary, [tabindex]";
  const at = [...old.querySelectorAll(reach)].indexOf(document.activeElement);
  const open = new Set([...old.querySelectorAll("details[open]")].map(keyOf));
  fresh.querySelectorAll("details").forEach((one) => { one.open = open.has(keyOf(one)); });
  fresh.querySelectorAll("[data-chart]").forEach((one) => {
    const before = old.querySelector(`[data-chart][data-key="${CSS.escape(one.dataset.key)}"] .plot`);
    if (before) {
      before.setAttribute("aria-label", one.querySelector(".plot").getAttribute("aria-label"));
      one.querySelector(".plot").replaceWith(before);
    }
  });
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
  emits: ["choose"],
  mounted() {
    this.$el.innerHTML = this.content;
    this.$el.addEventListener("click", (event) => {
      const button = event.target.closest("[data-choice]");
      if (button?.dataset.value !== undefined) this.choose(button.dataset.choice, button.dataset.value);
    });
    this.$el.addEventListener("input", (event) => {
      const field = event.target.closest("input[data-choice]");
      if (field) this.choose(field.dataset.choice, field.value);
    });
    // NiceGUI's popup says that the server is gone; a tab in the background says it, too
    const popup = document.getElementById("popup");
    const said = () => {
      if (popup.ariaHidden === "false") document.title = "no connection - Tidegate";
      else this.arrived();
    };
    if (popup) new MutationObserver(said).observe(popup, { attributeFilter: ["aria-hidden"] });
    this.arrived();
  },
  methods: {
    choose(choice, value) {
      this.$emit("choose", { choice, value });
    },
    change(changes) {
      for (const [name, placed] of Object.entries(changes)) {
        if (name !== "") {
          const part = [...this.$el.children].find((one) => one.dataset.part === name);
          const rows = part?.querySelector("[data-rows]");
          if (rows) arranged(rows, placed);
        }
      }
      if (changes[""]) arranged(this.$el, changes[""]);
      this.arrived();
    },
    async arrived() {
      const title = this.$el.querySelector("[data-title]")?.dataset.title;
      if (title) document.title = title;
      if (!this.$el.querySelector("[data-chart]")) return;
      const { drawAll } = await import("tidegate-charts");
      drawAll(this.$el);
    },
  },
};
