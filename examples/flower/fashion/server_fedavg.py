"""Plain FedAvg, as Flower has it."""

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fashion.task import make_model, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, test after every round, print what came out."""
    settings = context.run_config
    model = make_model(settings["model"])

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        accuracy, loss = test(model)
        return MetricRecord({"accuracy": accuracy, "loss": loss})

    strategy = FedAvg(fraction_evaluate=0.0)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(model.state_dict()),
        num_rounds=settings["rounds"],
        train_config=ConfigRecord({"lr": 0.1, "local-steps": 10, "batch-size": 50}),
        evaluate_fn=evaluate,
    )
    print(f"accuracy {result.evaluate_metrics_serverapp[settings['rounds']]['accuracy']:.3f}")
