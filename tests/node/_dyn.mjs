import { load, Tensor, memory } from "gradloom";
const noise = (n) => Float32Array.from({length:n},(_, i)=>Math.sin(i*1.37)*0.5+0.5);
const img = (name, more={}) => (s) => ({ [name]: new Tensor(noise(s.reduce((a,b)=>a*b,1)), s), ...more });
const ids=(s)=>({chars:new Tensor(BigInt64Array.from({length:s[0]*s[1]},(_,i)=>BigInt(i*3%20+1)),s)});
const M = {
  esrgan_slim_x2: [img("LR"), [[1,48,48,3],[1,64,48,3],[1,40,72,3],[1,90,60,3],[1,120,160,3],[1,100,100,3]]],
  hibari_oov: [ids, [[1,6],[1,9],[1,12],[1,7],[1,20],[1,40]]],
  hibari_oov_gb: [ids, [[1,6],[1,9],[1,12],[1,7],[1,20],[1,40]]],
  ppocr_cls: [img("x"), [[1,3,48,192],[3,3,48,192],[7,3,48,192],[12,3,48,192],[40,3,48,192]]],
  ppocrv4_det: [img("x"), [[1,3,160,160],[1,3,192,160],[1,3,160,256],[1,3,320,224],[1,3,288,288]]],
  ppocrv4_rec: [img("x"), [[1,3,48,160],[1,3,48,200],[2,3,48,240],[1,3,48,320],[4,3,48,320],[3,3,48,290]]],
  style_multistyle26: [img("image",{style_weights:noise(26)}), [[1,3,64,64],[1,3,96,64],[1,3,64,128],[1,3,160,120],[1,3,112,112]]],
  yolov8n_nudenet: [img("images"), [[1,3,160,160],[1,3,160,224],[1,3,320,320],[2,3,160,160],[1,3,256,320]]],
  basic_pitch: [img("serving_default_input_2"), [[1,43844,1],[2,43844,1],[3,43844,1],[5,43844,1]]],
  magika: [(s)=>({bytes:new Tensor(Int32Array.from({length:s[0]*s[1]},(_,i)=>i*7%256),s)}), [[1,2048],[2,2048],[5,2048],[9,2048],[30,2048]]],
  silero_vad_op15: [([b,n])=>({input:new Tensor(noise(b*n),[b,n]),state:new Tensor(new Float32Array(2*b*128),[2,b,128]),sr:new Tensor(BigInt64Array.of(16000n),[])}), [[1,512],[2,512],[5,512],[9,512]]],
  silero_vad_sequence: [([b])=>({input:new Tensor(noise(b*576),[b,576]),h:new Tensor(new Float32Array(128),[1,1,128]),c:new Tensor(new Float32Array(128),[1,1,128])}), [[5],[9],[17],[30],[100]]],
  zoo_densenet: [img("x"), [[1,3,64,64],[2,3,64,64],[5,3,64,64],[9,3,64,64],[30,3,64,64]]],
  zoo_mamba: [([b])=>({input_ids:new Tensor(BigInt64Array.from({length:b*8},(_,i)=>BigInt(i*3%20)),[b,8])}), [[1],[2],[5],[9],[30]]],
};
const only = process.argv.slice(2);
for (const [name,[make,shapes]] of Object.entries(M)) {
  if (only.length && !only.includes(name)) continue;
  const f = ["ppocrv4_rec","yolov8n_nudenet"].includes(name) ? `.cache/models/${name}/model.onnx` : `tests/models/${name}/model.onnx`;
  const ms = await Promise.all([true,false].map(dynamic=>load(f,{device:"wasm",dynamic})));
  for (const s of shapes) {
    const r=[[],[]]; const k=[0,0]; const outs=[];let late=[0,0];
    for (let rep=0; rep<6; rep++) for (const w of [0,1]) {
      let last=performance.now(), most=0; const t=setInterval(()=>{const n=performance.now(); most=Math.max(most,n-last); last=n},1);
      const t0=performance.now(); 
      const o = await ms[w].run(make(s)).catch(e=>({e}));
      if (o.e) { console.log("ERR", w, o.e.message); clearInterval(t); continue; }
      const first=Object.values(o).map(x=>x.data()); const d=await Promise.all(first);
      r[w].push(performance.now()-t0); most=Math.max(most,performance.now()-last); clearInterval(t);
      if(rep===0){k[w]=ms[w].timing.kernelsCompiled+ms[w].timing.kernelsCached*0; outs[w]=d; late[w]=most}
      Object.values(o).forEach(x=>x.dispose());
    }
    let err=0; if(outs[0]&&outs[1]) outs[0].forEach((a,i)=>{const b=outs[1][i]; let m=1e-9; for(const x of b) m=Math.max(m,Math.abs(Number(x))); a.forEach((x,j)=>{err=Math.max(err,Math.abs(Number(x)-Number(b[j]))/m)})});
    const min=(a)=>Math.min(...a.slice(1)).toFixed(2);
    console.log(name.padEnd(20), String(s).padEnd(16), `dyn ${k[0]} kern first ${r[0][0]?.toFixed(0)} ms then ${min(r[0])} late ${late[0].toFixed(0)} | own ${k[1]} kern first ${r[1][0]?.toFixed(0)} then ${min(r[1])} late ${late[1].toFixed(0)}| err ${err.toExponential(1)}`);
  }
  const mem = await memory(); console.log("   mem", mem.map(x=>JSON.stringify(x)).join().slice(0,300));
  ms.forEach(m=>m.dispose());
}
