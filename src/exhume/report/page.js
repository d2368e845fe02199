"use strict";
(() => {
  const root = document.documentElement;
  const by = (id) => document.getElementById(id);
  root.classList.add("js");

  // Light or dark: the system setting, until the button is pressed.
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  by("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
  });

  // The gallery: one attack at a time, sorted and filtered.
  const cards = [...document.querySelectorAll(".card, .record")];
  const lists = [...document.querySelectorAll("[data-of]")];
  const tools = by("tools");
  const kinds = {
    "": () => true,
    certified: (kind) => kind === "certified",
    shown: (kind) => kind === "certified" || kind === "good",
    missed: (kind) => kind === "other" || kind === "false",
    other: (kind) => kind !== "certified",
  };
  const value = (id) => (by(id) ? by(id).value : "");
  const shown = () => cards.filter((card) => !card.hidden && !card.parentElement.hidden);

  function refresh() {
    const attack = by("by-attack") ? value("by-attack") : null;
    for (const list of lists) list.hidden = attack !== null && list.dataset.of !== attack;
    const wanted = value("find").trim().toLowerCase();
    const label = value("by-label");
    for (const card of cards) {
      const { kind, example } = card.dataset;
      const text = card.querySelector(".caption, summary").textContent.toLowerCase();
      const isFound = wanted === "" || (/^\d+$/.test(wanted) ? example === wanted : text.includes(wanted));
      card.hidden = !(kinds[value("by-kind")](kind) && (label === "" || card.dataset.label === label) && isFound);
    }
    const key = value("by").replace(/-$/, "");
    const sign = value("by").endsWith("-") ? -1 : 1;
    const rank = (card) => (key in card.dataset ? sign * Number(card.dataset[key]) : Infinity);
    for (const list of document.querySelectorAll("ul.gallery, ul.records")) {
      list.append(...[...list.children].sort((a, b) => rank(a) - rank(b) || a.dataset.place - b.dataset.place));
    }
    const count = shown().length;
    const all = cards.filter((card) => !card.parentElement.hidden).length;
    by("count").textContent = count === all ? `${all} shown` : `${count} of ${all} shown`;
    by("none").hidden = count > 0;
  }

  if (tools) {
    tools.addEventListener("input", refresh);
    tools.addEventListener("submit", (event) => event.preventDefault());
    by("clear").addEventListener("click", () => {
      tools.reset();
      refresh();
      by("find").focus();
    });
    refresh();
  }

  // Zoom: a dialog with the images side by side, and their difference.
  const zoom = by("zoom");
  let current = null;

  function side(word, ...images) {
    const figure = document.createElement("figure");
    const frame = document.createElement("div");
    frame.className = images.length > 1 ? "frame difference" : "frame";
    for (const image of images) {
      const copy = new Image();
      copy.src = image.src;
      copy.alt = images.length > 1 ? "" : image.alt;
      frame.append(copy);
    }
    const caption = document.createElement("figcaption");
    caption.textContent = word;
    figure.append(frame, caption);
    return figure;
  }

  function enlarge(card) {
    current = card;
    const images = [...card.querySelectorAll("img")];
    const words = [...card.querySelectorAll(".word")].map((word) => word.textContent);
    const sides = images.map((image, place) => side(words[place], image));
    if (words[1] === "trained on") sides.splice(2, 0, side("difference × 8", images[0], images[1]));
    by("zoom-sides").replaceChildren(...sides);
    by("zoom-title").textContent = card.querySelector(".caption b").textContent;
    const proof = card.querySelector(".proof");
    by("zoom-about").textContent = [card.querySelector(".caption .quiet"), proof]
      .filter(Boolean)
      .map((part) => part.textContent)
      .join(" · ");
    const visible = shown();
    by("zoom-place").textContent = `${visible.indexOf(card) + 1} of ${visible.length}`;
    if (!zoom.open) zoom.showModal();
  }

  function step(by) {
    const visible = shown();
    const next = visible[(visible.indexOf(current) + by + visible.length) % visible.length];
    if (next) enlarge(next);
  }

  if (zoom) {
    for (const button of document.querySelectorAll(".card .open")) {
      button.addEventListener("click", () => enlarge(button.closest(".card")));
    }
    by("zoom-close").addEventListener("click", () => zoom.close());
    by("zoom-back").addEventListener("click", () => step(-1));
    by("zoom-on").addEventListener("click", () => step(1));
    zoom.addEventListener("click", (event) => event.target === zoom && zoom.close());
    zoom.addEventListener("keydown", (event) => {
      if (event.key === "ArrowRight") step(1);
      else if (event.key === "ArrowLeft") step(-1);
      else return;
      event.preventDefault();
    });
    zoom.addEventListener("close", () => current && current.querySelector(".open").focus());
  }

  // Keyboard: / focuses the search field, arrows move through the gallery.
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea, dialog");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && tools && !isTyping) {
      by("find").focus();
      event.preventDefault();
    }
    const card = event.target.closest(".card");
    if (card && !isTyping && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      const visible = shown();
      const next = visible[visible.indexOf(card) + (event.key === "ArrowRight" ? 1 : -1)];
      if (next) next.querySelector(".open").focus();
      event.preventDefault();
    }
  });

  // Sort a table by the column whose header is pressed.
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.querySelectorAll("th[data-key]")];
    for (const head of heads) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const isUp = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", isUp ? "descending" : "ascending");
        const key = head.dataset.key;
        const sign = isUp ? -1 : 1;
        const compare = (a, b) => {
          const [x, y] = [a.dataset[key], b.dataset[key]];
          const numbers = Number(x) - Number(y);
          return sign * (Number.isNaN(numbers) ? x.localeCompare(y) : numbers);
        };
        table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
      });
    }
  }

  // Open all collapsed parts for printing.
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) part.open = true;
  });
})();
