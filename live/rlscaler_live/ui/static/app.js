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
});
