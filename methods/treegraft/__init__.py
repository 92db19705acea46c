"""TreeGraft: look-up and a middle drafter grow one tree, and a scheduler decides which takes a step."""
