// Passes the samples that are selected in the picture to the gallery, which shows their cards.
{
  const plot = document.getElementById("features");
  const tell = rows => document.dispatchEvent(new CustomEvent("samples-selected", { detail: rows }));
  const rows = event => event.points.map(point => point.customdata).filter(row => row !== undefined);
  // a finger scrolls the page and taps samples; a mouse can also draw around samples
  if (matchMedia("(pointer: fine)").matches) Plotly.relayout?.(plot, { dragmode: "lasso" });
  plot.on?.("plotly_selected", event => event && tell(rows(event)));
  plot.on?.("plotly_click", event => tell(rows(event)));
  plot.on?.("plotly_deselect", () => tell(null));
  document.addEventListener("selection-cleared", () => {
    const none = plot.data.map(() => null);
    Plotly.restyle(plot, { selectedpoints: none });
    Plotly.relayout(plot, { selections: [] });
  });
}
