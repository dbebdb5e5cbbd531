from celeris.batch import Batch as Batch
