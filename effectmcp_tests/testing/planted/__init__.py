"""Tools with one mistake each. Its line ends in `# here`: a good message names it."""
