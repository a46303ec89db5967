"use strict";

// Buttons copy a command; the page itself never changes anything.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  const told = document.getElementById("copied");
  try {
    await navigator.clipboard.writeText(source.textContent);
    told.textContent = "Copied. Paste it into a terminal.";
  } catch {
    getSelection().selectAllChildren(source);
    told.textContent = "The browser does not let this page copy: the command is selected.";
  }
  setTimeout(() => { told.textContent = ""; }, 4000);
});

// A part that cannot be read again says so, in place of an old one that looks like new.
const lost = document.getElementById("lost");
const tell = (text) => { lost.textContent = text; lost.hidden = !text; };
document.addEventListener("htmx:sendError", () => tell("rlscaler ui has ended: what is shown is out of date."));
document.addEventListener("htmx:responseError", (event) => tell(event.detail.xhr.responseText.slice(0, 500)));
document.addEventListener("htmx:afterOnLoad", () => tell(""));
