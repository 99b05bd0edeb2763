"""Jobs as code: what a file or an application says of jobs, checked, compared with the table, and made so.

One definition of a job's fields serves all doors: files, Python functions, the command line, the schema for editors.
"""
