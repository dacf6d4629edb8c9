"use strict";
// The page is whole without this script. It adds: light or dark by choice, one class at a time, tables that sort.
{
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Light and dark: the dark style sheet follows the system until the button is used.
  const dark = document.getElementById("dark");
  const theme = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const isDark = () => chosen ?? system.matches;
  const nameTheme = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    chosen = !isDark();
    dark.media = chosen ? "screen" : "not all";
    nameTheme();
  });
  system.addEventListener("change", nameTheme);
  nameTheme();

  // A choice shows one figure of several, or makes the marks of one class stand out.
  for (const select of all("select[data-for]")) {
    const box = document.getElementById(select.dataset.for);
    const figures = all("[data-choice]", box);
    const marks = all("[data-class]", box);
    const show = () => {
      for (const figure of figures) figure.classList.toggle("unpicked", figure.dataset.choice !== select.value);
      for (const group of marks) {
        group.classList.toggle("dim", select.value !== "" && group.dataset.class !== select.value);
        group.classList.toggle("lit", group.dataset.class === select.value);
      }
    };
    if (box.tagName === "DETAILS") {
      box.open = true;
      box.classList.add("picked");
    }
    select.closest(".control").hidden = false;
    select.addEventListener("change", show);
    show();
  }

  // Tables sort by the column whose header is pressed; once more, and the other way round.
  const key = (row, column) => {
    const cell = row.cells[column];
    return "order" in cell.dataset ? Number(cell.dataset.order) : cell.textContent.trim();
  };
  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  const sort = (table, column) => {
    const heads = [...table.tHead.rows[0].cells];
    const rises = heads[column].getAttribute("aria-sort") !== "ascending";
    const rows = [...table.tBodies[0].rows].sort((a, b) => (rises ? 1 : -1) * compare(key(a, column), key(b, column)));
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", rises ? "ascending" : "descending");
    table.tBodies[0].append(...rows);
  };
  for (const table of all("table[data-sortable]")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, column));
      head.append(button);
    });
  }

  // A table wider than the screen says so, and fades at the edge behind which it continues.
  for (const box of all(".scroll")) {
    const cue = document.createElement("p");
    cue.className = "cue";
    cue.textContent = "Scroll sideways for more columns \u2192";
    cue.setAttribute("aria-hidden", "true");
    box.before(cue);
    const look = () => {
      cue.hidden = box.scrollWidth <= box.clientWidth + 1;
      box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    };
    box.addEventListener("scroll", look);
    new ResizeObserver(look).observe(box);
    look();
  }

  // The contents tell where the reader is.
  const links = new Map(all("nav a").map((link) => [link.getAttribute("href").slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const link = links.get(entry.target.id);
      if (entry.isIntersecting) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-20% 0px -75% 0px" });
  for (const part of all("main > section")) seen.observe(part);

  // In the frame of a notebook a link to a part of the page would load the notebook itself: go there by hand.
  if (location.protocol === "about:") {
    addEventListener("click", (event) => {
      const link = event.target.closest("a[href^='#']");
      if (!link) return;
      event.preventDefault();
      document.getElementById(link.getAttribute("href").slice(1)).scrollIntoView();
    });
  }

  // Paper has no buttons: what is folded is printed open.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    for (const part of folded) part.open = true;
  });
  addEventListener("afterprint", () => {
    for (const part of folded) part.open = false;
  });
}
