// An ordinary pipeline. It asks for less memory than it needs, says nothing about retries, and knows nothing of Holdfast.
process part {
  memory '100 MB'
  time '5 min'
  input: val n
  output: path "part${n}.txt"
  script:
  """
  python3 -c 'import time; x = bytearray(150 * 2**20); time.sleep(3)'
  echo ${n} > part${n}.txt
  """
}

process join_parts {
  memory '100 MB'
  publishDir 'out'
  input: path parts
  output: path 'merged.txt'
  script: "cat ${parts} > merged.txt"
}

workflow { part(Channel.of(1, 2)) | collect | join_parts }
