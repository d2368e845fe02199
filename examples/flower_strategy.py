"""Audit every client's update inside a strategy of Flower (``pip install flwr``).

``AuditingFedAvg`` is federated averaging that also says what the server could recover from each update. Use it in place
of ``flwr.serverapp.strategy.FedAvg``.
"""

from federated import network
from flwr.serverapp.strategy import FedAvg

import exhume


class AuditingFedAvg(FedAvg):
    """Federated averaging that audits each update before it is averaged."""

    verdicts: list[str]

    def configure_train(self, server_round, arrays, config, grid):  # type: ignore[no-untyped-def]
        """Remember what is sent."""
        self.sent, self.verdicts = arrays.to_torch_state_dict(), []
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):  # type: ignore[no-untyped-def]
        """Audit each update that comes back, then average them."""
        replies = list(replies)
        for update in (reply.content.array_records for reply in replies if not reply.has_error()):
            received = next(iter(update.values())).to_torch_state_dict()
            view = exhume.AttackerView(
                model=network(), initial=self.sent, final=received, input_shape=(1, 8, 8), bounds=(-0.3, 0.7)
            )
            audit = exhume.audit(view, attacks=[exhume.attacks.GateCertificate()], budget=5.0)
            self.verdicts.append(exhume.verdict(audit).sentence)
            print(f"round {server_round}: {self.verdicts[-1]}")
        return super().aggregate_train(server_round, replies)
