"""Parts of the scripted engine: what it says, how it spells it in tokens, how fast and how faulty it is."""
