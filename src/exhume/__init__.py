"""exhume: can somebody dig the training data out of these weights?"""
