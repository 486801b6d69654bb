"""Data sets from objects of other libraries: pandas, `torch.utils.data.Dataset`, Hugging Face `datasets`.

None of these libraries is imported: objects are recognised by their attributes. May import: core, data.
"""
