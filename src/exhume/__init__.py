"""exhume: can somebody dig the training data out of these weights?

Recover training data from a network, prove which recoveries are real, and compare every score with held-out data that
the network was not trained on::

    data = exhume.load("faces", size=40)
    victim = exhume.train(data, model=exhume.MLP(width=1024, depth=2))
    found = exhume.attacks.GateCertificate().run(victim.view(), seed=0)
    result = exhume.evaluate(found, data, victim=victim)
    exhume.report(result, "report.html")

``__init__.pyi`` declares the public names; each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
