// Runs a folder of `flair-nas tag export` by onnxruntime-web. Words are split more simply than in Python.
import * as ort from "./node_modules/onnxruntime-web/dist/ort.wasm.min.mjs";

ort.env.wasm.numThreads = 1;
const WORD = /[\p{L}\p{N}]+(?:[-'’.,][\p{L}\p{N}]+)*|\S/gu;
const indices = (values, shape) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape);
const numbers = (values, shape) => new ort.Tensor("float32", values, shape);

async function read(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path}: ${response.status} ${response.statusText}`);
  return response;
}

// The array of a .npy file, which `numpy.save` wrote: [rows, width] in float32.
async function readArray(path) {
  const buffer = await (await read(path)).arrayBuffer();
  const size = new DataView(buffer).getUint16(8, true);
  const shape = new TextDecoder().decode(new Uint8Array(buffer, 10, size)).match(/\((\d+), (\d+)\)/);
  return { values: new Float32Array(buffer, 10 + size), rows: +shape[1], width: +shape[2] };
}

// The tensors of a .safetensors file: 8 bytes of length, JSON of that length, and the data.
async function readTensors(path) {
  const types = { U8: Uint8Array, I8: Int8Array, U16: Uint16Array, F32: Float32Array };
  const buffer = await (await read(path)).arrayBuffer();
  const data = 8 + new DataView(buffer).getUint32(0, true);
  const { __metadata__, ...header } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, data - 8)));
  const tensors = {};
  for (const [name, { dtype, data_offsets: [start, end] }] of Object.entries(header))
    tensors[name] = new types[dtype](buffer.slice(data + start, data + end));
  return tensors;
}

// The place of a word among sorted ones, or -1. They are bytes, and end where `ends` says.
function findWord(word, bytes, ends) {
  const key = new TextEncoder().encode(word);
  const compare = place => {
    const start = place ? ends[place - 1] + 1 : 0, size = Math.min(key.length, ends[place] - start);
    for (let at = 0; at < size; at++) if (bytes[start + at] !== key[at]) return bytes[start + at] - key[at];
    return ends[place] - start - key.length;
  };
  let low = 0, high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(middle) < 0) low = middle + 1;
    else high = middle;
  }
  return low < ends.length && compare(low) === 0 ? low : -1;
}

// The numbers of a word's parts, as fastText has them: runs of 3 to 6 characters of the word between < and >.
function* hashParts(word) {
  const letters = Array.from(`<${word}>`, letter => new TextEncoder().encode(letter));
  for (let start = 0; start + 3 <= letters.length; start++) {
    let number = 2166136261;
    for (const [place, letter] of letters.slice(start, start + 6).entries()) {
      for (const byte of letter) number = Math.imul(number ^ ((byte << 24) >> 24), 16777619); // bytes are signed
      if (place >= 2) yield number >>> 0;
    }
  }
}

// A function from a word to the mean of the rows of its parts.
function averageParts(vectors, scales, width) {
  return word => {
    const mean = new Float32Array(width), numbers = [...hashParts(word)];
    for (const number of numbers) {
      const row = number % scales.length;
      for (let at = 0; at < width; at++) mean[at] += vectors[row * width + at] * scales[row];
    }
    return mean.map(value => value / Math.max(1, numbers.length));
  };
}

// Embeddings: functions from words to their vectors, one Float32Array for each word.
const makers = {
  async table(settings, folder) {
    const keys = await (await read(`${folder}/${settings.keys}`)).json();
    const rows = new Map(keys.map((key, row) => [key, row]));
    const { values, rows: count, width } = await readArray(`${folder}/${settings.vectors}`);
    return words => words.map(word => {
      const lower = word.toLowerCase();
      const forms = settings.loose ? [word, lower, lower.replace(/\d/g, "#"), lower.replace(/\d/g, "0")] : [word];
      const row = rows.get(forms.find(form => rows.has(form))) ?? count - 1;
      return values.subarray(row * width, (row + 1) * width);
    });
  },
  async words({ words: name, width }, folder) {
    const { words: bytes, rows, vectors, scales, ...parts } = await readTensors(`${folder}/${name}`);
    const ends = [];
    bytes.forEach((byte, place) => byte === 10 && ends.push(place));
    const average = parts.part_vectors && averageParts(parts.part_vectors, parts.part_scales, width);
    return words => words.map(word => {
      const forms = average ? [word] : [word, word.toLowerCase()];
      const place = forms.map(form => findWord(form, bytes, ends)).find(found => found >= 0);
      if (place === undefined) return average ? average(word) : new Float32Array(width);
      const row = rows[place];
      return Float32Array.from(vectors.subarray(row * width, (row + 1) * width), value => value * scales[row]);
    });
  },
  async characters(settings, folder) {
    const session = await ort.InferenceSession.create(`${folder}/${settings.model}`);
    return async words => {
      const found = [];
      for (const word of words) {
        const ids = Array.from(word, character => settings.characters[character] ?? 0);
        const feeds = { ids: indices(ids, [1, ids.length]), lengths: indices([ids.length], [1]) };
        found.push((await session.run(feeds)).vectors.data);
      }
      return found;
    };
  },
  async "language model"(settings, folder) {
    const session = await ort.InferenceSession.create(`${folder}/${settings.model}`);
    const states = session.inputMetadata.slice(1).map(({ name, shape }) => [name, [shape[0], 1, shape[2]]]);
    return async words => {
      const text = Array.from(words.join(" "));
      const order = settings.is_forward_lm ? text : text.toReversed();
      const read = [...settings.start_marker, ...order, " "].map(c => settings.characters[c] ?? 0);
      const feeds = { ids: indices(read, [1, read.length]) };
      for (const [name, shape] of states) feeds[name] = numbers(new Float32Array(shape[0] * shape[2]), shape);
      const { data, dims } = (await session.run(feeds)).states;
      let before = settings.start_marker.length, after = before + text.length;
      return words.map(word => {
        const size = Array.from(word).length;
        before += size;
        const place = (settings.is_forward_lm ? before : after) - !settings.with_whitespace;
        before += 1;
        after -= size + 1;
        return data.subarray(place * dims[2], (place + 1) * dims[2]);
      });
    };
  },
  async transformer(settings) {
    throw new Error(`${settings.name} is a transformer, which this page does not run`);
  },
  async given(settings) {
    throw new Error(`${settings.name} could not be exported`);
  },
};

makers["word characters"] = makers.characters;

// The best tags under the CRF, from emissions [T, tags] and scores of a tag after another one, [tag, previous tag].
function viterbi(emissions, transitions, [start, stop], count) {
  const score = (tag, previous) => transitions[tag * count + previous];
  const tags = [...Array(count).keys()];
  let best = tags.map(tag => emissions[0][tag] + score(tag, start));
  const paths = [];
  const bestBefore = (tag, scores) =>
    tags.reduce((a, b) => (scores[b] + score(tag, b) > scores[a] + score(tag, a) ? b : a));
  for (const row of emissions.slice(1)) {
    const path = tags.map(tag => bestBefore(tag, best));
    paths.push(path);
    best = tags.map(tag => row[tag] + score(tag, path[tag]) + best[path[tag]]);
  }
  const found = [bestBefore(stop, best)];
  for (const path of paths.reverse()) found.unshift(path[found[0]]);
  return found;
}

// Spans of tags with the prefixes B, I, E and S, by numbers of words.
function findSpans(tags) {
  const spans = [];
  let open = null;
  tags.forEach((tag, place) => {
    const inside = tag !== "O" && tag !== "_", label = tag.slice(2);
    if (!inside || !open || /^[BS]/.test(tag) || (tag[0] === "I" && label !== open.label)) {
      open = inside ? { label, first: place, end: place } : null;
      if (open) spans.push(open);
    }
    if (open) open.end = place + 1;
  });
  return spans;
}

export async function loadTagger(folder) {
  const settings = await (await read(`${folder}/tagger.json`)).json();
  const embeddings = [];
  for (const entry of settings.embeddings) embeddings.push(await makers[entry.kind](entry, folder));
  const session = await ort.InferenceSession.create(`${folder}/tagger.onnx`);
  const transitions = settings.crf && (await readArray(`${folder}/transitions.npy`)).values;
  const count = settings.tags.length;
  return {
    // The labels of a line: {label, start, end}.
    async predict(line) {
      const words = [...line.matchAll(WORD)];
      if (!words.length) return [];
      const texts = words.map(word => word[0]);
      const x = new Float32Array(words.length * settings.width);
      let column = 0;
      for (const [number, embed] of embeddings.entries()) {
        (await embed(texts)).forEach((vector, row) => x.set(vector, row * settings.width + column));
        column += settings.embeddings[number].width;
      }
      const feeds = { x: numbers(x, [1, words.length, settings.width]), lengths: indices([words.length], [1]) };
      const { data } = (await session.run(feeds)).emissions;
      const emissions = words.map((_, row) => data.subarray(row * count, (row + 1) * count));
      const best = transitions
        ? viterbi(emissions, transitions, settings.crf, count)
        : emissions.map(row => row.indexOf(Math.max(...row)));
      const tags = best.map(number => settings.tags[number]);
      const spans = settings.spans
        ? findSpans(tags)
        : tags.flatMap((label, first) => (label === "O" || label === "_" ? [] : [{ label, first, end: first + 1 }]));
      return spans.map(({ label, first, end }) => {
        const last = words[end - 1];
        return { label, start: words[first].index, end: last.index + last[0].length };
      });
    },
  };
}
