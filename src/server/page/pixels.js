// Strokes of a pen to the 64 numbers that the digits model takes. Pure.
//
// The model learned from scans, each cut to the digit's bounding box and scaled into a bitmap of 32 x 32; a pixel of the
// 8 x 8 image counts the inked pixels, 0 to 16, of a block of 4 x 4. In those 1,797 images a digit fills the full height,
// is about six of eight columns wide, and has nearly the same ink whatever it is (313 of 1,024 pixels on average): a 1 has
// a broad stroke, an 8 a thin one. So the pen's path is fitted into the bitmap, and its breadth is found from the ink.

const SIDE = 32;              // of the bitmap, in pixels
const BLOCK = 4;              // bitmap pixels per image pixel, along each side
const WIDEST = 26;            // of a digit, in pixels; a wider one is squeezed
const MOST_SQUEEZED = 0.5;    // of its width: a dash stays a dash
const INK = 313;              // pixels
const BREADTH = [1.5, 12];    // of a stroke, in pixels: thinnest, broadest

/** The 64 pixels, 0 to 16, row by row, of a drawing: a list of strokes, each a list of points [x, y] of any scale. */
export function pixelsOf(strokes) {
  const points = strokes.flat();
  const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  const left = Math.min(...xs), right = Math.max(...xs), top = Math.min(...ys), bottom = Math.max(...ys);
  const width = Math.max(right - left, 1e-6), height = Math.max(bottom - top, 1e-6);

  let bitmap;
  let [thin, broad] = BREADTH;
  for (let step = 0; step < 10; step++) { // halves the span ten times: to a hundredth of a pixel
    const breadth = (thin + broad) / 2;
    let y_scale = (SIDE - breadth) / height;
    const x_scale = Math.min(y_scale, (WIDEST - breadth) / width);
    y_scale = Math.min(y_scale, x_scale / MOST_SQUEEZED);
    const fitted = strokes.map((stroke) => stroke.map(([x, y]) => [
      SIDE / 2 + (x - (left + right) / 2) * x_scale,
      SIDE / 2 + (y - (top + bottom) / 2) * y_scale,
    ]));
    bitmap = inked(fitted, breadth / 2);
    const ink = bitmap.reduce((sum, on) => sum + on, 0);
    if (ink < INK) thin = breadth; else broad = breadth;
  }

  const pixels = new Array(64).fill(0);
  bitmap.forEach((on, at) => {
    const row = Math.floor(at / SIDE / BLOCK), column = Math.floor((at % SIDE) / BLOCK);
    pixels[row * 8 + column] += on;
  });
  return pixels;
}

/** The bitmap, 1 where a pixel's centre lies within `radius` of a stroke. Not read from a canvas: some browsers blur that. */
function inked(strokes, radius) {
  const bitmap = new Uint8Array(SIDE * SIDE);
  const clamp = (value) => Math.max(0, Math.min(SIDE - 1, Math.floor(value)));
  for (const stroke of strokes) {
    stroke.forEach(([bx, by], index) => {
      const [ax, ay] = stroke[Math.max(0, index - 1)]; // the first point is a segment without length: a dot
      const dx = bx - ax, dy = by - ay, squared = dx * dx + dy * dy;
      for (let y = clamp(Math.min(ay, by) - radius); y <= clamp(Math.max(ay, by) + radius); y++) {
        for (let x = clamp(Math.min(ax, bx) - radius); x <= clamp(Math.max(ax, bx) + radius); x++) {
          const px = x + 0.5 - ax, py = y + 0.5 - ay;
          const along = squared > 0 ? Math.max(0, Math.min(1, (px * dx + py * dy) / squared)) : 0;
          if (Math.hypot(px - along * dx, py - along * dy) <= radius) bitmap[y * SIDE + x] = 1;
        }
      }
    });
  }
  return bitmap;
}
