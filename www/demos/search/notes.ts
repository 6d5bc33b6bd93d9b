// The sample text of the search page until it is given files: untidy personal notes, written for this demo.
export const NOTES = `Grandma's lentil soup: fry two onions and a carrot, add a cup of red lentils, a spoon of cumin and broth, simmer for
half an hour. Lemon at the end.

The boiler makes a knocking noise whenever somebody showers. Call the plumber before it gets cold again.

Tom still has my drill, and the forty euros he borrowed in June. He never pays back.

Flight to Lisbon leaves on the 14th at 6:35 in the morning. The airport bus goes from the main square at four.

The cat must not eat for twelve hours before the operation. Doctor Ferreira's practice opens at eight.

Router: the name is on the sticker underneath. If the net is gone, pull the plug, count to thirty, plug it in again.

Tomatoes want sun and a stick to climb; water them at the root, never on the leaves. Basil beside them keeps the flies
away.

Anna turns thirty on Saturday. She wanted the blue bicycle lamp, or a good book about volcanoes.

Back stretches: lie down, pull one knee to the chest, hold for twenty breaths, change sides. Every morning, not only
when it hurts.

The tenancy ends in March. Three months' notice, in writing, and the walls have to be white again.

Sourdough: feed it equal parts of flour and water the evening before. It is ready when it floats.

Idea for the novel: a lighthouse keeper finds letters in bottles that are addressed to him, dated next year.

Guitar: the G string goes flat first. Tune it from below, never from above.

The tax office wants the receipts of last year by the end of May. They are in the shoe box under the bed.

Mum's new number is on the fridge. She likes to be called on Sundays after lunch.

Bicycle: the rear brake squeaks. New pads fit from the shop by the bridge, the chain needs oil too.

In the dream I could breathe under water, and the whole town was down there, with trams and all.

For a fever: rest, a lot to drink, cold cloths around the calves. If it is above 39.5 for two days, see a doctor.

Chess with Samir: he always opens with the queen's pawn. Try the Dutch defence, it annoys him.

Meteors: the Perseids are best around the 12th of August, after midnight, far from the lamps of the city. Take
blankets.

Coffee machine: descale it every two months with citric acid, then two tanks of clear water.

Job interview on Thursday at ten. Ask about remote work, and who I would report to.

The neighbours' son plays the drums after nine. Talk to them kindly first, then to the landlord.

Packing for the mountains: warm socks, head lamp, plasters, the good knife, chocolate. Leave the laptop.

Portuguese: obrigado from men, obrigada from women. Bom dia until noon.

The password book is where the spare keys are. Do not write down where that is.

Photos of the wedding are on the grey disk, in the folder with the wrong year.

Pancakes for four: three eggs, a quarter litre of milk, 150 grams of flour, a pinch of salt. Let it rest.`;

/** Sample queries. */
export const QUERIES = [
  "something warm to eat", "who owes me money?", "when do I have to get up for the plane", "my internet is broken",
  "shooting stars", "moving out",
];
