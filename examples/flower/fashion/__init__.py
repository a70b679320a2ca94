"""Fashion-MNIST on Flower's nodes: plain, and over the air."""
