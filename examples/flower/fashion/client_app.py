"""What a node does: train its share. It is the same with and without radio."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fashion.task import make_model, share_of, train

app = ClientApp()


@app.train()
def fit(message: Message, context: Context) -> Message:
    """Take the model, train it for some steps, and send it back."""
    torch.set_num_threads(1)
    told, node = message.content["config"], context.node_config["partition-id"]
    model = make_model(context.run_config["model"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    inputs, labels = share_of(node, context.node_config["num-partitions"])
    seed = 1000 * told["server-round"] + node
    loss = train(model, inputs, labels, told["lr"], told["local-steps"], told["batch-size"], seed)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)
