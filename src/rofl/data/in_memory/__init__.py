"""Objects of other libraries as data sets: pandas frames, `torch.utils.data.Dataset`, Hugging Face `datasets`.

None of these libraries is imported: their objects are read by the names that they have. May import: core, data.
"""
